"""Which docker program of a node can build: programs that say what the real ones of that version say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.agent.docker import program as dockercli
from sparkbuild.agent.wire.protocol import AgentError


def program(folder: Path, version: str, *, buildx: bool) -> Path:
    folder.mkdir()
    path = folder / "docker"
    said = (
        'echo "github.com/docker/buildx v0.29"'
        if buildx
        else "echo \"docker: 'buildx' is not a docker command.\"; exit 1"
    )
    path.write_text(
        f'#!/bin/sh\ncase $1 in\nbuildx) {said};;\n--version) echo "Docker version {version}, build x";;\nesac\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dockercli, "_PLACES", ())


def test_the_first_that_can_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = program(tmp_path / "a", "28.2.2", buildx=False)
    second = program(tmp_path / "b", "20.10.24+dfsg1", buildx=False)
    third = program(tmp_path / "c", "28.2.2", buildx=True)
    monkeypatch.setenv("PATH", f"{first.parent}:{second.parent}:{third.parent}")
    found = dockercli.find("")
    assert (found.path, found.buildx) == (str(second), False)
    assert found.version.startswith("Docker version 20.10.24")
    second.unlink()
    assert (dockercli.find("").path, dockercli.find("").buildx) == (str(third), True)


def test_none_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "a", "28.2.2", buildx=False)
    monkeypatch.setenv("PATH", str(path.parent))
    with pytest.raises(AgentError, match="docker on this node cannot build with BuildKit") as caught:
        dockercli.find("")
    assert caught.value.fields["kind"] == "config"
    assert "Docker version 28.2.2, without buildx" in caught.value.fields["found"]
    assert "docker-buildx-plugin" in caught.value.fields["next"]
    path.unlink()
    with pytest.raises(AgentError, match="there is no docker program on this node"):
        dockercli.find("")


def test_the_environment_leads_to_this_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "BUILDX_BUILDER"):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
    env = dockercli.Client("docker", buildx=False, version="", socket="/run/d.sock").env
    assert env["DOCKER_HOST"] == "unix:///run/d.sock"
    assert "elsewhere" not in env.values()
