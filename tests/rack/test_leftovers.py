"""A rack leaves nothing behind, however it ends; several are up side by side; where none can be, the reason is said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rack import needs, network
from tests.rack.network import Network
from tests.rack.proc import Proc, RackError, wait_for
from tests.rack.rack import Rack, running
from tests.rack.snapshot import inhabited, spaces, taken

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_racks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Racks of others, in their own folder, are neither swept nor counted by these tests."""
    monkeypatch.setenv("SPARKBUILD_RACK_DIR", str(tmp_path / "racks"))


@pytest.fixture
def clean(possible: None) -> Iterator[set[str]]:  # noqa: ARG001 - a fixture for what it does
    """Nothing more is there after the test than was before. Links of other racks come and go meanwhile."""
    before = taken()
    yield before
    end = time.monotonic() + 5
    while (more := _more(before)) and time.monotonic() < end:
        time.sleep(0.05)
    assert more == set()


def _more(before: set[str]) -> set[str]:
    others = re.compile(r"^link sprack\d+$|/sparkbuild-rack/")
    return {line for line in taken() - before if not others.search(line)}


@pytest.mark.usefixtures("nas_python")
def test_everything_that_a_rack_takes_is_given_back(clean: set[str], tmp_path: Path) -> None:
    with Rack.up(2, disk_mb=64) as rack:
        rack.nas(tmp_path).mount(None, tmp_path / "here")
        rack.nas(tmp_path).mount(rack.nodes[0], "/mnt/nas")
        kinds = {line.split()[0] for line in taken() - clean}
        assert {"link", "loop", "mount", "folder"} <= kinds, "so the comparison sees what a rack takes"
        link, inside = rack.switch.link, spaces(rack)
        assert len(inhabited(inside)) > 8
    assert not Path(f"/sys/class/net/{link}").exists()
    assert inhabited(inside) == []


@pytest.mark.usefixtures("clean")
def test_after_an_error_in_the_block() -> None:
    links = []

    def fail() -> None:
        with Rack.up(1, docker=False) as rack:
            links.append(rack.switch.link)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not Path(f"/sys/class/net/{links[0]}").exists()


@pytest.mark.usefixtures("clean")
def test_after_an_error_while_it_comes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RackError("no cable")

    monkeypatch.setattr(network.Switch, "connect", fail)
    with pytest.raises(RackError, match="no cable"), Rack.up(2, docker=False):
        raise AssertionError("not reached")


def test_down_twice() -> None:
    if problem := needs.lacking():
        pytest.skip(problem)
    rack = Rack.start(1, docker=False)
    rack.down()
    rack.down()


DRIVER = textwrap.dedent("""\
    import sys, time
    from tests.rack.rack import Rack
    with Rack.up(1, disk_mb=64) as rack:
        print(rack.folder, rack.switch.link, rack.keeper.pid, rack.keeper.started, flush=True)
        time.sleep(60)
    """)


def _driver() -> tuple[subprocess.Popen[str], Path, str, Proc]:
    process = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    folder, link, pid, started = process.stdout.readline().split()
    return process, Path(folder), link, Proc(int(pid), int(started))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("clean")
def test_after_a_signal_to_whoever_brought_it_up(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    process, folder, link, keeper = _driver()
    process.send_signal(number)
    process.communicate(timeout=30)
    wait_for("the keeper clears up", lambda: not keeper.alive())
    assert not folder.exists()
    assert not Path(f"/sys/class/net/{link}").exists()
    capfd.readouterr()


@pytest.mark.usefixtures("clean")
def test_the_next_rack_clears_what_a_killed_one_left() -> None:
    process, folder, link, keeper = _driver()
    inside = {os.readlink(f"/proc/{keeper.pid}/ns/pid")}
    keeper.signal(signal.SIGKILL)
    wait_for("all of the rack is dead", lambda: not keeper.alive() and not inhabited(inside))
    process.kill()
    process.communicate(timeout=30)
    assert folder.exists(), "nobody was there to remove it"
    wait_for("a dead rack is not taken for one that is up", lambda: running() == [])
    with Rack.up(0) as rack:
        assert rack.nodes == []
        assert not (folder / "dgx1").exists(), "its disk is gone (its number may be in use again)"
    wait_for("the link is gone", lambda: not Path(f"/sys/class/net/{link}").exists())


@pytest.mark.usefixtures("clean")
def test_two_racks_side_by_side() -> None:
    with Rack.up(1, docker=False) as one:
        with Rack.up(1, docker=False) as two:
            assert one.folder != two.folder
            assert not one.switch.network.overlaps(two.switch.network)
            assert [rack.folder for rack in running()] == sorted([one.folder, two.folder])
            for rack in (one, two):
                assert rack.nodes[0].ssh(["hostname"]).out == "dgx1\n"
            assert one.nodes[0].host_key != two.nodes[0].host_key
            assert one.nodes[0].run(["ping", "-c", "1", "-W", "1", two.nodes[0].address]).code != 0
        assert one.nodes[0].ssh(["true"]).code == 0, "the end of one is not the other's"


def test_networks_do_not_clash() -> None:
    assert str(network.choose([])) == "10.77.0.0/24"
    assert str(network.choose([Network("10.77.0.0/23")])) == "10.77.2.0/24"
    assert str(network.choose([Network("10.0.0.0/8"), Network("172.16.0.0/12")])) == "192.168.0.0/24"
    with pytest.raises(RackError, match="routed elsewhere"):
        network.choose([Network("0.0.0.0/0")])


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert needs.lacking() == "a rack needs root: its nodes are namespaces with mounts and links of their own"
    with pytest.raises(RackError, match="needs root"):
        Rack.start(1)


def test_without_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "SEARCHED", str(tmp_path))
    said = needs.lacking()
    assert said.startswith("a rack needs dockerd, ")
    assert "apt-get install docker.io" in said
    assert "openssh-server" in said
