"""Private registries: docker's own file of logins, its helpers, and what a registry is told, over real sockets."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError, UpstreamError
from sparkbuild.upstream.challenge import challenges, seconds
from sparkbuild.upstream.logins import HUB, Login, login_for, login_of
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.locks.reference import parse
from tests.upstream.registry import Server, registry

NAME, PASSWORD = "ops", "pass:w\u00f6rd"
AUTH = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()


@pytest.fixture
def server() -> Iterator[Server]:
    with registry() as made:
        made.put("org/vllm", "1.0", "a")
        yield made


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of docker's settings; a helper `fake` beside it, which knows what helper.json says."""
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    program = tmp_path / "bin" / "docker-credential-fake"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'test "$1" = get || exit 2\n'
        'read -r name || test -n "$name"\n'
        f'echo "$name" >>{tmp_path}/asked\n'
        f'file={tmp_path}/helper/$(echo "$name" | tr -c "a-zA-Z0-9.\\n" _)\n'
        'if test -f "$file"; then cat "$file"; else echo "credentials not found in native keychain"; exit 1; fi\n'
    )
    program.chmod(0o755)
    (tmp_path / "helper").mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder


def config(folder: Path, content: Any) -> None:
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))


def test_nobody_is_logged_in(docker: Path) -> None:
    assert login_of("registry.example.org") is None
    config(docker, {"auths": {"registry.example.org": {}}})
    assert login_of("registry.example.org") is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("registry.example.org", "registry.example.org"),
        ("registry.example.org:5000", "https://registry.example.org:5000/v2/"),
        ("registry.example.org", "https://registry.example.org/v1/"),
        ("", HUB),
        ("docker.io", HUB),
        ("docker.io", "docker.io"),
    ],
)
def test_by_every_name_of_a_registry(docker: Path, host: str, name: str) -> None:
    config(docker, {"auths": {name: {"auth": AUTH}, "other.example.org": {"auth": "eDp5"}}})
    found = login_of(host)
    assert found is not None
    assert (found.name, found.password) == (NAME, PASSWORD)
    assert PASSWORD not in repr(found)
    told = json.loads(base64.urlsafe_b64decode(found.for_docker()))
    assert (told["username"], told["password"]) == (NAME, PASSWORD)


def test_a_helper_counts_before_the_file(docker: Path, tmp_path: Path) -> None:
    (tmp_path / "helper/r.example.org").write_text('{"ServerURL": "x", "Username": "me", "Secret": "s"}')
    (tmp_path / "helper/t.example.org").write_text('{"Username": "<token>", "Secret": "id"}')
    config(docker, {"auths": {"r.example.org": {}, "f.example.org": {"auth": AUTH}}, "credsStore": "fake"})
    assert login_of("r.example.org") == Login("r.example.org", "me", "s")
    assert login_of("t.example.org") == Login("t.example.org", identity="id")
    found = login_of("f.example.org")
    assert found is not None
    assert found.name == NAME, "the store has none, the file has"
    config(docker, {"credHelpers": {"r.example.org": "fake"}, "credsStore": "gone"})
    assert login_of("r.example.org") == Login("r.example.org", "me", "s")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "it is not JSON"),
        ({"auths": {"r.example.org": {"auth": "%"}}}, "docker login r.example.org"),
        ({"credHelpers": {"r.example.org": "nowhere"}}, "docker-credential-nowhere"),
        ({"credHelpers": {"r.example.org": "../x"}}, "cannot be used"),
    ],
)
def test_what_cannot_be_read(docker: Path, content: Any, says: str) -> None:
    config(docker, content)
    with pytest.raises(ConfigError) as caught:
        login_of("r.example.org")
    assert says in str(caught.value)
    assert str(docker) in str(caught.value)


@pytest.mark.parametrize("basic", [True, False])
def test_a_registry_that_wants_a_login(server: Server, docker: Path, basic: bool) -> None:
    server.login, server.basic, server.token = f"{NAME}:{PASSWORD}", basic, "" if basic else "t0k"
    with closing(Registry(server.host, "org/vllm")) as asked, pytest.raises(UpstreamError) as caught:
        asked.digest("1.0")
    assert "the registry wants a login" in str(caught.value)
    assert f"`docker login {server.host}`" in caught.value.next
    config(docker, {"auths": {server.host: {"auth": AUTH}}})
    with closing(Registry(server.host, "org/vllm")) as asked:
        assert asked.digest("1.0") == server.put("org/vllm", "1.0", "a")
        asked.find(server.put("org/vllm", "1.0", "a"))
        assert asked.tags() == ["1.0"]
    config(docker, {"auths": {server.host: {"username": NAME, "password": "old"}}})
    with closing(Registry(server.host, "org/vllm")) as asked, pytest.raises(UpstreamError) as caught:
        asked.digest("1.0")
    assert "does not take the login that docker has" in str(caught.value)
    assert str(docker / "config.json") in caught.value.found
    assert "old" not in str(caught.value).replace("older", "")


def test_a_helper_that_is_gone_keeps_nobody_from_what_is_for_everybody(server: Server, docker: Path) -> None:
    config(docker, {"credsStore": "gone"})
    server.token = "t0k"
    with closing(Registry(server.host, "org/vllm")) as asked:
        assert asked.digest("1.0")
    server.login = f"{NAME}:{PASSWORD}"
    with closing(Registry(server.host, "org/vllm")) as asked, pytest.raises(UpstreamError) as caught:
        asked.digest("1.0")
    assert "wants a login, which cannot be read" in caught.value.what
    assert "docker-credential-gone" in caught.value.found
    assert login_for(parse(f"{server.host}/org/vllm:1.0")) == ""


def test_a_login_is_not_shown_to_another_place_without_tls(server: Server, docker: Path) -> None:
    config(docker, {"auths": {server.host: {"auth": AUTH}}})
    with closing(Registry(server.host, "org/vllm")) as asked:
        asked._login = login_of(server.host)
        assert asked._bearer({"realm": "http://registry.example.org/token"}) == ""


def test_a_busy_registry_is_waited_for_as_long_as_it_says(server: Server) -> None:
    server.busy, server.retry_after = 2, "1"
    start = time.monotonic()
    with closing(Registry(server.host, "org/vllm")) as asked:
        assert asked.digest("1.0")
    assert time.monotonic() - start >= 2
    server.busy, server.retry_after = 1, "3600"
    with closing(Registry(server.host, "org/vllm")) as asked, pytest.raises(UpstreamError) as caught:
        asked.digest("1.0")
    assert "asked too often" in caught.value.what
    assert "Retry-After: 3600" in caught.value.found
    assert "docker login" in caught.value.next


def test_challenges() -> None:
    (one, other) = challenges(['Bearer realm="https://a/t",service="x, y",scope="r:a/b:pull,push", Basic realm="z"'])
    assert one == ("bearer", {"realm": "https://a/t", "service": "x, y", "scope": "r:a/b:pull,push"})
    assert other == ("basic", {"realm": "z"})
    assert challenges(["Basic", "Bearer realm=x"]) == [("basic", {}), ("bearer", {"realm": "x"})]
    assert seconds("7") == 7.0
    assert seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert seconds("soon") is None
