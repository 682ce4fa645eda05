"""What a Dockerfile may say, as a template and filled in."""

from __future__ import annotations

import pytest

from sparkbuild.workspace.images.dockerfile import Rules, faults, scan

RULES = Rules("{{ base }}", network=False, secrets=("TOKEN",))
FROM = "FROM {{ base }}\n"


def told(text: str, rules: Rules = RULES) -> list[tuple[int, str]]:
    return [(fault.line, fault.what) for fault in faults(text, rules)]


@pytest.mark.parametrize(
    "text",
    [
        FROM,
        "# a comment\n\nARG X=1\nFROM {{base}} AS build\nRUN true\nFROM {{ base }}\nCOPY --from=build /a /b\n",
        "FROM {{- base -}}\n",
        "from {{ base }} as build\nrun true\nfrom build\ncopy --from=0 /a /b\n",
        "FROM --platform=linux/arm64 {{ base }}\n",
        FROM + "RUN --mount=type=secret,id=TOKEN cat /run/secrets/TOKEN\n",
        FROM + "RUN --mount=type=secret,target=/run/secrets/TOKEN true\n",
        FROM + "RUN --mount=type=cache,target=/c --network=none true\n",
        FROM + "ADD {{ artifacts.a }} files/x /y/\n",
        FROM + "{% if args.A %}\nRUN true \\\n  # in between\n  && false\n{% endif %}\n{# FROM no #}\n",
        FROM + "RUN <<EOF\nFROM other\nADD http://x /y\nEOF\nRUN true\n",
        FROM + "LABEL made.by=me\nENV A=1 B=2\nARG C\n",
    ],
)
def test_what_is_fine(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "it has no FROM"),
        ("RUN true\nFROM {{ base }}\n", 1, "it does not start with FROM"),
        ("\nFROM debian:12\n", 2, "it does not start from the declared base"),
        ("ARG B={{ base }}\nFROM ${B}\n", 2, "it does not start from the declared base"),
        (FROM + "FROM debian:12 AS other\n", 2, "a stage starts from an image that is not declared"),
        (FROM + "COPY --from=debian:12 /a /b\n", 2, "it takes files from an image that is not declared"),
        (FROM + "COPY --from=0 /a /b\n", 2, "it takes files from an image that is not declared"),
        (FROM + "RUN --mount=type=bind,from=debian true\n", 2, "it takes files from an image that is not declared"),
        (FROM + "ADD https://example.org/x.tar /x\n", 2, "it downloads, and the image is built without a network"),
        (FROM + "ADD --chown=1:1 a git@example.org:x.git /x\n", 2, "it downloads, and the image is built without a"),
        (FROM + 'ADD ["http://x/a", "/a"]\n', 2, "it downloads, and the image is built without a network"),
        (FROM + "RUN --network=default true\n", 2, "it asks for a network that it is not to have"),
        (FROM + "RUN --security=insecure true\n", 2, "it asks for more rights than a build has"),
        (FROM + "RUN --mount=type=secret,id=OTHER true\n", 2, "it mounts a secret that is not declared"),
        (FROM + "ARG TOKEN\n", 2, "a secret in ARG stays in the image"),
        (FROM + "ENV A=1 \\\n    TOKEN=x\n", 2, "a secret in ENV stays in the image"),
        (FROM + "LABEL a=b sparkbuild.key=x\n", 2, "this label is set after the gates"),
        (FROM + "ONBUILD RUN true\n", 2, "ONBUILD would change what is built from this image"),
        ("# syntax=docker/dockerfile:1\n" + FROM, 1, "`# syntax=` is not used here"),
        ("# escape=`\n" + FROM, 1, "`# escape=` is not used here"),
    ],
)
def test_what_is_not(text: str, line: int, what: str) -> None:
    (found,) = told(text)
    assert found[0] == line
    assert found[1].startswith(what)


def test_with_a_network() -> None:
    rules = Rules("{{ base }}", network=True, secrets=())
    assert told(FROM + "ADD https://example.org/x /x\nRUN --network=default true\n", rules) == []
    assert told(FROM + "RUN --network=host true\n", rules) == [(2, "it asks for a network that it is not to have")]


def test_filled_in() -> None:
    rules = Rules("sparkbuild/x:abc", network=False, secrets=())
    assert told("FROM sparkbuild/x:abc\n", rules) == []
    assert told("FROM sparkbuild/x:abd\n", rules) == [(1, "it does not start from the declared base")]


@pytest.mark.parametrize(
    "text",
    [
        "FROM docker.io/sparkbuild/r35:0d1be1f0c5a1\n",
        "FROM sparkbuild/r35\n",
        FROM + "FROM docker.io/sparkbuild/r35:latest AS other\n",
        FROM + "COPY --from=index.docker.io/sparkbuild/r35:x /a /b\n",
    ],
)
def test_docker_s_name_for_an_image_of_the_workspace(text: str) -> None:
    (fault,) = faults(text, RULES)
    wanted = 'FROM {{ base }}, and base = "image:r35" in image.toml: that is an image of the workspace'
    assert fault.wanted == wanted
    assert told("FROM scratch\n", Rules("scratch", network=False, secrets=())) == []


def test_lines_are_those_of_the_file() -> None:
    text = "{#\n a comment\n#}\nFROM {{ base }}\n{% for x in y %}\nRUN a \\\n\n b\n{% endfor %}\nRUN c\n"
    assert [(one.line, one.name, one.text) for one in scan(text)] == [
        (4, "FROM", "{{base}}"),
        (6, "RUN", "a b"),
        (10, "RUN", "c"),
    ]
