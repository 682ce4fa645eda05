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
        "ARG B={{ base }}\nFROM ${B}\nFROM ${A:-scratch} AS two\nFROM TWO\n",
        FROM + "ARG D=files\nADD $D/a /x\nENV E=$D\nADD ${E}/b /x\nCOPY $HOME/x /y\n",
        FROM + "CO\\\nPY a /b\n\tRUN\ttrue\n",
        FROM + 'RUN cat <<-"A B" && cat <<C\nFROM x\n\tA B\nADD http://x /y\nC\nRUN true\n',
        FROM + "RUN cat <<EOF\n EOF\nFROM other\nEOF\n",
        FROM + 'RUN --mount=type=secret,"id=TOKEN" --mount=type=bind,target=/x,rw=true true\n',
        FROM + 'HEALTHCHECK --interval=5s CMD true\nSHELL ["/bin/bash", "-c"]\nEXPOSE 80\n',
        FROM + "RUN echo $((1<<2)) <<<word && cat<<EOF\nRUN true\n",
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
        ("ARG B=debian\nFROM ${B}\n", 2, "it does not start from the declared base"),
        ("FROM ${B}\n", 1, "it does not start from the declared base"),
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
        (FROM + "COPY\t--from=debian /a /b\n", 2, "it takes files from an image that is not declared"),
        (FROM + "CO\\\nPY --fr\\\nom=debian /a /b\n", 2, "it takes files from an image that is not declared"),
        (FROM + "COPY --link --from=$X /a /b\n", 2, "it takes files from an image that is not declared"),
        (FROM + 'COPY "--from=debian" /a /b\nCOPY --"from"=debian /a /b\n', 3, "it takes files from an image"),
        (FROM + "RUN --mount=type=bind,From=img true\n", 2, "it takes files from an image that is not declared"),
        (FROM + "RUN --mount=from=img true\n", 2, "it takes files from an image that is not declared"),
        (FROM + 'RUN --mount=type=bind,"from=img" true\n', 2, "it takes files from an image that is not declared"),
        (FROM + 'RUN --mount=type=bind,\\"from=img\\" true\n', 2, "it takes files from an image that is not"),
        (FROM + "RUN --mount=TYPE=Cache,FROM=img,target=/c true\n", 2, "it takes files from an image that is not"),
        (FROM + "RUN --mount=type=ssh true\n", 2, "a mount of a type that may not stand here"),
        (FROM + "RUN --mount=type=bind,fro=img true\n", 2, "a mount of type bind with a key that it may not have"),
        (FROM + "RUN --device=nvidia.com/gpu=all true\n", 2, "a flag that RUN may not have here"),
        (FROM + "WORKDIR --x /y\n", 2, "a flag that WORKDIR may not have here"),
        (FROM + "ARG U=http://x/y\nADD $U /x\n", 3, "it downloads, and the image is built without a network"),
        (FROM + "ENV U=http\nADD ${U}://x/y /x\n", 3, "it downloads, and the image is built without a network"),
        ("ARG U=http://x\n" + FROM + "ARG U\nADD $U /x\n", 4, "it downloads, and the image is built without"),
        (FROM + "ENV U=http://x\nFROM {{ base }}\nADD $U /x\n", 4, "it may download: what a variable of ADD"),
        ("FROM {{ base }} AS a\nENV U=http://x\nFROM a\nADD $U /x\n", 4, "it downloads, and the image is built"),
        (FROM + "ENV U=a\nENV U=$V\nADD $U /x\n", 4, "it may download: what a variable of ADD"),
        (FROM + 'ADD "http://x/y" /z\n', 2, "it downloads, and the image is built without a network"),
        (FROM + "ADD ht\\tp://x/y /z\n", 2, "it downloads, and the image is built without a network"),
        (FROM + "ADD ssh://git@x/y.git /z\n", 2, "it downloads, and the image is built without a network"),
        (FROM + "ADD user@host:y.git /z\n", 2, "it downloads, and the image is built without a network"),
        (FROM + "RUN bash <<<EOF\nADD http://x /y\n", 3, "it downloads, and the image is built without a network"),
        (FROM + "RUN cat<<EOF\nADD http://x /y\n", 3, "it downloads, and the image is built without a network"),
        (FROM + "RUN cat <<EOF\nEOF\nADD http://x /y\n", 4, "it downloads, and the image is built without a network"),
        (FROM + 'RUN ["cat"] <<EOF\nADD http://x /y\n', 3, "it downloads, and the image is built without a network"),
        (FROM + "RUN cat <<EOF\nx\n", 2, "it cannot be read for certain"),
        (FROM + "RUN echo ' <<EOF\nEOF\n", 2, "it cannot be read for certain"),
        (FROM + "RUN a \\\\\nCOPY b /c\n", 2, "it cannot be read for certain"),
        (FROM + "COPY\u00a0--from=x a /b\n", 2, "it cannot be read for certain"),
        (FROM + "COPY --link\u00a0--from=x a /b\n", 2, "it cannot be read for certain"),
        (FROM + "ARG N=sparkbuild.key\nLABEL $N=x\n", 3, "this label is set after the gates"),
        (FROM + "LABEL $N=x\n", 2, "a name by variable in LABEL"),
        (FROM + 'LABEL "sparkbuild.key"=x\n', 2, "this label is set after the gates"),
        (FROM + "ENV ${N}=x\n", 2, "a name by variable in ENV"),
        (FROM + "ARG N TOKEN=1\n", 2, "a secret in ARG stays in the image"),
        (FROM + 'ENV "TOKEN"=x\n', 2, "a secret in ENV stays in the image"),
        (FROM + "ENV TOKEN x y\n", 2, "a secret in ENV stays in the image"),
        (FROM + "INCLUDE other\n", 2, "an instruction that may not stand here"),
        ("FROM {{ base }} AS\n", 1, "FROM cannot be read"),
        ("\n # syntax = x/y\n" + FROM, 2, "`# syntax=` is not used here"),
        (FROM + "ONBUILD RUN true\n", 2, "ONBUILD would change what is built from this image"),
        ("# syntax=docker/dockerfile:1\n" + FROM, 1, "`# syntax=` is not used here"),
        ("# escape=`\n" + FROM, 1, "`# escape=` is not used here"),
    ],
)
def test_what_is_not(text: str, line: int, what: str) -> None:
    found = told(text)[0]
    assert found[0] == line
    assert found[1].startswith(what)


def test_the_args_of_the_build_count_more_than_defaults() -> None:
    rules = Rules("{{ base }}", network=False, secrets=(), args={"U": "http://x/y"})
    text = FROM + "ARG U=files/a\nADD $U /x\n"
    assert told(text) == []
    assert told(text, rules) == [(3, "it downloads, and the image is built without a network")]


def test_what_looks_like_a_template_hides_nothing_once_it_is_filled_in() -> None:
    rules = Rules("b", network=False, secrets=(), filled=True)
    text = "FROM b\n# {%\nADD http://x /y\n# %}\nADD {{http://x}} /y\nCOPY --from={{x}} a /b\n"
    assert [line for line, _ in told(text, rules)] == [3, 6]


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
        (6, "RUN", "a  b"),
        (10, "RUN", "c"),
    ]
