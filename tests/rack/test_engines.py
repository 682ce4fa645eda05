"""Docker engines and other machines of a rack: nodes have what was asked for, and what was not fetched is not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rack import engines, foreign, needs, systems
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
    monkeypatch.setattr(systems.os, "geteuid", lambda: 0)
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


def test_another_machine_that_was_not_fetched_is_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKBUILD_RACK_SYSTEMS", str(tmp_path / "systems"))
    assert foreign.lacking() == "arm64 is not tried: it was not fetched yet: python3 -m tests.rack arm64"
    monkeypatch.setattr(foreign, "LINE", tmp_path / "none.conf")
    assert "apt-get install --no-install-recommends qemu-user-static" in foreign.fetch()
    assert foreign.lacking().startswith("arm64 is not tried: its programs need qemu, and there is no ")
    assert foreign.shown() == foreign.lacking()
    with pytest.raises(RackError, match="not tried"):
        foreign.root()
    assert [path.name for path in (tmp_path / "systems").iterdir()] == ["arm64.reason"]
    monkeypatch.setattr(foreign, "LINE", Path(__file__))
    monkeypatch.setenv("PATH", str(tmp_path))  # no debootstrap
    assert "debootstrap" in foreign.fetch()


@pytest.mark.usefixtures("possible")
def test_only_nodes_of_the_rack_can_be_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "lacking", lambda: "")
    with pytest.raises(RackError, match="no node dgx3: a rack of 2 has dgx1 to dgx2"):
        Rack.start(2, docker=False, arm64=["dgx3"])


def test_what_only_long_tests_need_is_asked_for_by_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "SEARCHED", "")
    assert "qemu-user-static" not in needs.missing_packages()
    assert needs.missing_packages(long=True)["qemu-user-static"] == ["qemu-aarch64-static"]
