"""References of images, as docker reads them."""

from __future__ import annotations

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.locks.reference import is_reference, is_tag, parse, rewritten

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "host", "repository", "name"),
    [
        (f"team/engine@{DIGEST}", "docker.io", "team/engine", "engine"),
        (f"engine@{DIGEST}", "docker.io", "engine", "engine"),
        (f"engine:v1@{DIGEST}", "docker.io", "engine", "engine"),
        (f"ghcr.io/team/sub/engine@{DIGEST}", "ghcr.io", "ghcr.io/team/sub/engine", "engine"),
        (f"localhost/engine@{DIGEST}", "localhost", "localhost/engine", "engine"),
        (f"10.0.0.1:5000/engine@{DIGEST}", "10.0.0.1:5000", "10.0.0.1:5000/engine", "engine"),
        (f"docker.io/library/engine@{DIGEST}", "docker.io", "engine", "engine"),
    ],
)
def test_pinned(text: str, host: str, repository: str, name: str) -> None:
    found = parse(text)
    assert (found.host, found.repository, found.name) == (host, repository, name)
    assert found.pinned == f"{repository}@{DIGEST}"


def test_floating() -> None:
    assert parse("team/engine:nightly").pinned == ""
    assert parse("team/engine:nightly").tag == "nightly"
    assert parse("10.0.0.1:5000/engine").tag == ""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Team/engine", "lower case"),
        ("team//engine", "lower case"),
        ("team/engine@sha256:abc", "64 hex digits"),
        (f"team/engine@{DIGEST}@{DIGEST}", "64 hex digits"),
        ("team/engine:-", "a tag of letters"),
        (f"@{DIGEST}", "lower case"),
    ],
)
def test_what_docker_would_not_take(text: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert wanted in caught.value.wanted


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("team/engine", "team/engine"),
        ("engine:v1", "engine"),
        (f"10.0.0.1:5000/team/engine:v1@{DIGEST}", "10.0.0.1:5000/team/engine"),
        (f"10.0.0.1:5000/engine@{DIGEST}", "10.0.0.1:5000/engine"),
        ("docker.io/library/engine:v1", "docker.io/library/engine"),
    ],
)
def test_rewritten(text: str, name: str) -> None:
    other = f"sha256:{'b' * 64}"
    new = rewritten(text, "v2", other)
    assert new == f"{name}:v2@{other}"
    found, old = parse(new), parse(text)
    assert (found.host, found.path, found.tag, found.digest) == (old.host, old.path, "v2", other)


def test_tags() -> None:
    tags = ("v1", "13.0-devel", "_x", "", "-x", "a/b", "a:b", f"v1@{DIGEST}", "v 1", "x" * 129)
    assert [is_tag(tag) for tag in tags] == [True] * 3 + [False] * 7


def test_what_is_one() -> None:
    assert [is_reference(text) for text in ("r35", "a/b", "a:1", f"a@{DIGEST}")] == [False, True, True, True]
