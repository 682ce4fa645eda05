"""Asking a registry, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sparkbuild.core.errors import UpstreamError
from sparkbuild.upstream.registry import Registry
from sparkbuild.upstream.registryhost import DEFAULT
from tests.upstream.registry import Server, registry


@pytest.fixture
def server() -> Iterator[Server]:
    with registry() as made:
        yield made


@pytest.fixture
def asked(server: Server) -> Iterator[Registry]:
    with closing(Registry(server.host, "org/vllm")) as made:
        yield made


@pytest.mark.parametrize("token", ["", "t0k"])
def test_digests_and_tags(server: Server, asked: Registry, token: str):
    server.token = token
    digests = {tag: server.put("org/vllm", tag, tag) for tag in ("1.0", "1.1", "1.2", "latest", "x")}
    assert asked.digest("1.1") == digests["1.1"]
    assert asked.check(digests["1.0"]) > 0
    assert asked.tags() == ["1.0", "1.1", "1.2", "latest", "x"]
    assert sum(path.startswith("/token") for path in server.asked) == (1 if token else 0)


@pytest.mark.parametrize(
    ("wrong", "reached", "words"),
    [
        ("404", True, "no such image or tag"),
        ("403", False, "wants a login"),
        ("401", False, "wants a login"),
        ("429", False, "was asked too often"),
        ("503", False, "does not answer as it should"),
        ("lies", True, "another manifest under the digest"),
        ("big", True, "too big"),
    ],
)
def test_what_goes_wrong(server: Server, asked: Registry, wrong: str, reached: bool, words: str):
    digest = server.put("org/vllm", "1.0", "a")
    server.wrong = wrong
    with pytest.raises(UpstreamError, match=words) as caught:
        asked.check(digest)
    assert caught.value.reached is reached
    assert caught.value.where == f"{server.host}/org/vllm"


def test_a_list_that_is_none(server: Server, asked: Registry):
    server.put("org/vllm", "1.0", "a")
    server.wrong = "no list"
    with pytest.raises(UpstreamError, match="list of tags is none"):
        asked.tags()


def test_nobody_there(server: Server):
    host = server.host
    server.server_close()
    with closing(Registry(host, "a")) as made, pytest.raises(UpstreamError, match="cannot be reached") as caught:
        made.digest("x")
    assert not caught.value.reached


def test_names_without_a_host():
    with closing(Registry("", "debian")) as official, closing(Registry("", "org/vllm")) as other:
        assert (official.host, official.path) == (DEFAULT, "library/debian")
        assert other.path == "org/vllm"


def test_nobody_else_is_asked_without_tls(server: Server, asked: Registry):
    """A redirect from https, or from this machine, to http elsewhere would tell others what is asked, and with which
    token.
    """
    server.wrong = "away"
    with pytest.raises(UpstreamError, match="cannot be reached") as caught:
        asked.digest("x")
    assert caught.value.found == "it leads to http://registry.example, without TLS"


def test_a_token_without_end(server: Server, asked: Registry):
    server.token, server.wrong = "t0k", "long token"
    server.put("org/vllm", "1.0", "a")
    with pytest.raises(UpstreamError, match="too big") as caught:
        asked.digest("1.0")
    assert caught.value.reached
