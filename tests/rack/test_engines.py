"""The docker engines of a rack: nodes have the one that was asked for, and what was not fetched is not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rack import engines
from tests.rack.proc import RackError
from tests.rack.rack import Rack


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("name", [name for name in engines.KINDS if name != engines.DEFAULT])
def test_a_node_has_the_engine_that_was_asked_for(name: str) -> None:
    if problem := engines.lacking(name):
        pytest.skip(problem)
    with Rack.up(1, engine=name) as rack:
        docker = rack.nodes[0].docker
        shown = docker("info", "--format", "{{.ServerVersion}} {{.Driver}}").out.split()
        assert shown[0].partition("+")[0] in engines.versions(name)
        assert shown[1] == ("overlayfs" if name.endswith("containerd") else "overlay2")
        assert Rack.attach(rack.folder).nodes[0].engine == name


def test_an_engine_that_was_not_fetched_is_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKBUILD_RACK_SYSTEMS", str(tmp_path / "systems"))
    assert "python3 -m tests.rack engines" in engines.lacking("28")
    monkeypatch.setenv("PATH", str(tmp_path))  # no debootstrap
    assert "debootstrap" in engines.fetch()
    assert engines.lacking("28").startswith("engine 28 is not tried: root and debootstrap are needed")
    assert engines.versions("28-containerd") == engines.lacking("28-containerd")
    with pytest.raises(RackError, match="not tried"):
        engines.root("28")
    assert not list((tmp_path / "systems").glob("*.part"))


def test_a_fetch_that_ends_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program in the place of debootstrap writes half of a root and fails."""
    monkeypatch.setenv("SPARKBUILD_RACK_SYSTEMS", str(tmp_path / "systems"))
    monkeypatch.setattr(engines.os, "geteuid", lambda: 0)
    (tmp_path / "debootstrap").write_text('#!/bin/sh\nmkdir -p "$4/usr"\necho "E: no mirror"\nexit 1\n')
    (tmp_path / "debootstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reason = engines.fetch()
    assert "debootstrap of sid failed: E: no mirror" in reason
    assert "debootstrap of trixie failed: E: no mirror" in reason
    assert sorted(path.name for path in (tmp_path / "systems").iterdir()) == ["debian.log", "debian.reason", "lock"]


def test_only_known_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engines.VARIABLE, "19")
    with pytest.raises(RackError, match=r"no engine '19': there are 20, 28, 28-containerd"):
        engines.chosen()
