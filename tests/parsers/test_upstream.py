"""What registries answer, and what Dockerfiles and known_hosts files say."""

from __future__ import annotations

import copy
from pathlib import Path

import httpx
import pytest
from hypothesis import given, strategies as st

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.nodes.ssh import hostkeys
from sparkbuild.upstream import versions
from sparkbuild.upstream.boundedhttp import BoundedClient
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.images import dockerfile
from tests.parsers.near import bounded, damaged, json_like

TAGS = {"name": "x", "tags": ["v1.0", "v2.0"]}
CHALLENGE = b'Bearer realm="https://auth.example/token",service="s",scope="repository:x:pull"'
DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG V=1
FROM {{ base }} AS one
RUN --mount=type=bind,from=one,target=/x --network=none <<EOF
echo hello
EOF
COPY --from=one --chown=1:1 a.txt "b c" /x/
ADD {{ artifacts.wheel }} /opt/
LABEL a=b "c d"='e f'
ENV A=1 B="2 \\
 3"
SHELL ["/bin/sh", "-c"]
ONBUILD RUN true
"""
WORDS = st.sampled_from([
    "FROM", "RUN", "COPY", "--from=", "--mount=type=bind,from=", "<<EOF", "<<-'X'", "\\\n", "\t", "\v", "{{", "}}",
    "{% if", "%}", "{#", "#}", "# escape=`", '"', "'", "$X", "${X:-", "ARG ", "\r\n", "\0", "EOF\n",
])  # fmt: skip
KEY = b"AAAAC3NzaC1lZDI1NTE5AAAAIJ1fPzUpZm9yIGEgdGVzdCBvbmx5ISEhISEhISEhISEh"
KNOWN_HOSTS = b"10.0.0.11,dgx1 ssh-ed25519 " + KEY + b"\n@cert-authority * ssh-ed25519 " + KEY + b" c\n|1|a=|b= x y\n"


REGISTRY = Registry("registry.example", "x")  # its certificates take 30 ms to load


def registry(body: bytes, status: int, headers: dict[str, bytes]) -> Registry:
    """One that answers this to everything."""
    found = copy.copy(REGISTRY)
    given_headers = [(name.encode(), value) for name, value in headers.items()]
    says = httpx.MockTransport(lambda _: httpx.Response(status, headers=given_headers, content=body))
    found._client = BoundedClient("registry.example/x", 20.0, says)
    return found


@given(
    body=json_like(TAGS),
    status=st.sampled_from([200, 200, 200, 401, 403, 404, 429, 500]),
    challenge=damaged(CHALLENGE),
    link=damaged(b'</v2/x/tags/list?last=v2.0>; rel="next"'),
)
def test_a_registry(body: bytes, status: int, challenge: bytes, link: bytes) -> None:
    headers = {"WWW-Authenticate": challenge, "Link": link}
    asked = registry(body, status, {name: value for name, value in headers.items() if not set(value) & set(b"\r\n\0")})
    for ask in (asked.tags, lambda: asked.digest("v1.0"), lambda: asked.check("sha256:" + "0" * 64)):
        with bounded(SparkbuildError):
            ask()
    asked.close()


@given(names=st.lists(st.one_of(st.text(max_size=30), st.sampled_from(TAGS["tags"])), max_size=5))
def test_names_of_versions(names: list[str]) -> None:
    with bounded():
        versions.newest("v1.0", names)


def test_a_mount_of_a_field_that_is_too_long() -> None:
    rules = dockerfile.Rules(base="base", network=False, secrets=())
    (fault,) = dockerfile.faults(f"FROM base\nRUN --mount=type=bind,from={'[' * 200_000} true\n", rules)
    assert fault.what == "a mount that cannot be read"


@given(data=damaged(DOCKERFILE.encode()), more=st.lists(WORDS, max_size=8), at=st.integers(0, 400))
def test_a_dockerfile(data: bytes, more: list[str], at: int) -> None:
    text = data.decode(errors="replace")
    text = text[:at] + "".join(more) + text[at:]
    rules = dockerfile.Rules(base="{{ base }}", network=False, secrets=("TOKEN",))
    with bounded(SparkbuildError):
        dockerfile.scan(text)
        list(dockerfile.faults(text, rules))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ssh") / "known_hosts"


@given(data=damaged(KNOWN_HOSTS), more=st.binary(max_size=30))
def test_known_hosts(place: Path, data: bytes, more: bytes) -> None:
    place.write_bytes(data + more)
    shown = hostkeys.HostKey("ssh-ed25519", KEY.decode())
    with bounded(SparkbuildError):
        found = hostkeys.known("dgx1", str(place), [])
        hostkeys.judge(shown, "", found, "dgx1")
        hostkeys.types("", found)
