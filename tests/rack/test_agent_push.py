"""The agent on nodes: sent once for each version of it, on every Python, and what is said where it cannot be."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import IntegrityError, NodeError, SparkbuildError
from sparkbuild.core.plan import RUN, Verdict
from sparkbuild.core.run import Progress, Run
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.rpc import pack
from sparkbuild.nodes.ssh import command as sshexec, link
from sparkbuild.upstream.artifacts import ArtifactKind, ArtifactSpec, artifact_goal
from tests.rack import pythons
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.rack.reach import LOOK, NOTHING, STORE, place, reached, wait_for_agents, workspace

pytestmark = pytest.mark.usefixtures("possible", "home")
AWKWARD = '/srv/my store\'s "$HOME" \\ `x` !1 *'


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """One node with a small disk, without docker."""
    with Rack.up(1, docker=False, disk_mb=300) as up:
        yield up


@pytest.fixture
def node(wire: Rack) -> Iterator[Node]:
    one = wire.nodes[0]
    yield one
    one.run(["rm", "-rf", STORE, AWKWARD], check=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def root(tmp_path: Path, wire: Rack) -> Path:
    return workspace(tmp_path / "ws", wire)


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The times an agent was sent."""
    seen: list[str] = []
    real = pack.unpack_command

    def counted(python: str) -> str:
        seen.append(python)
        return real(python)

    monkeypatch.setattr(pack, "unpack_command", counted)
    return seen


def look(root: Path, given: Place) -> dict[str, Any]:
    with reached(root, {"dgx1": given}) as nodes:
        return nodes.agent("dgx1").call("facts", LOOK)


def failure(root: Path, given: Place) -> SparkbuildError:
    with pytest.raises(SparkbuildError) as raised:
        look(root, given)
    return raised.value


def test_it_is_sent_once(node: Node, root: Path, pushes: list[str]) -> None:
    for _ in range(2):
        assert look(root, place(node)) == NOTHING
    assert len(pushes) == 1
    assert os.listdir(node.path(f"{STORE}/agent")) == [pack.name()]
    held = node.path(f"{STORE}/agent/{pack.name()}/sparkbuild/agent")
    assert (held / "main.py").read_bytes() == (Path(pack.PACKAGE) / "agent/main.py").read_bytes()
    assert list((held / "__pycache__").glob("main.*.pyc"))
    assert not list(held.parent.rglob("nodes"))


def test_many_send_it_at_once(node: Node, root: Path, pushes: list[str]) -> None:
    """Threads of one run share one push; runs do not, and neither harms the other."""
    found: list[Any] = []

    def run() -> None:
        with reached(root, {"dgx1": place(node)}) as nodes:
            threads = [
                threading.Thread(target=lambda: found.append(nodes.agent("dgx1").call("facts", LOOK))) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    runs = [threading.Thread(target=run) for _ in range(3)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert found == [NOTHING] * 9
    assert 1 <= len(pushes) <= 3
    assert os.listdir(node.path(f"{STORE}/agent")) == [pack.name()]


def test_one_that_is_damaged_is_sent_again(node: Node, root: Path, pushes: list[str]) -> None:
    look(root, place(node))
    node.path(f"{STORE}/agent/{pack.name()}/sparkbuild/agent/main.py").unlink()
    assert look(root, place(node)) == NOTHING
    assert len(pushes) == 2


def test_another_version_is_another_process(
    node: Node, root: Path, pushes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of an older version that still runs goes on beside the one of this version."""
    cached = (pack.name, pack.archive)
    newer = sorted([*pack._sources(), ("sparkbuild/agent/newer.py", b"")])
    with reached(root, {"dgx1": place(node)}) as older:
        assert older.agent("dgx1").call("facts", LOOK) == NOTHING
        with monkeypatch.context() as patched:
            patched.setattr(pack, "_sources", lambda: newer)
            for one in cached:
                one.cache_clear()
            assert look(root, place(node)) == NOTHING
        for one in cached:
            one.cache_clear()
        assert older.agent("dgx1").call("facts", LOOK) == NOTHING
    assert len(pushes) == 2
    assert len(os.listdir(node.path(f"{STORE}/agent"))) == 2


def test_old_versions_go_those_in_use_stay(node: Node, root: Path) -> None:
    folder = f"{STORE}/agent"
    for age, name in enumerate(["a", "b", "c", "d", "e"]):
        node.run(["mkdir", "-p", f"{folder}/{name}"], check=True)
        node.run(["touch", "-d", f"{20 + age} days ago", f"{folder}/{name}"], check=True)
    node.run(["mkdir", f"{folder}/f", f"{folder}/g.1.tmp", f"{folder}/h.2.tmp"], check=True)
    node.run(["touch", "-d", "2 days ago", f"{folder}/g.1.tmp"], check=True)
    look(root, place(node))
    assert sorted(os.listdir(node.path(folder))) == sorted(["a", "b", "f", "h.2.tmp", pack.name()])


PYTHONS = {version: pythons.find(version) for version in ("3.10", "3.11", "3.12", "3.13", "3.14")}  # by the real HOME


@pytest.mark.parametrize("version", PYTHONS)
def test_every_python(node: Node, root: Path, version: str, pushes: list[str]) -> None:
    python = PYTHONS[version]
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    assert look(root, place(node, python=python)) == NOTHING
    assert look(root, place(node)) == NOTHING, "another Python uses what this one compiled for itself"
    assert len(pushes) == 1


def test_a_python_that_is_too_old(node: Node, root: Path) -> None:
    shim = "import sys; sys.version_info = (3, 8, 1); exec(sys.argv.pop(1))"
    old = f"#!/bin/sh\nshift 3\nexec /usr/bin/python3 -I -S -c '{shim}' \"$@\"\n"
    node.path("/srv/old python").write_text(old)
    node.run(["chmod", "755", "/srv/old python"], check=True)
    error = failure(root, place(node, python="/srv/old python"))
    assert isinstance(error, NodeError)
    assert error.what == "/srv/old python on dgx1 is too old"
    assert error.found == "Python 3.8.1"
    assert "`python` in config.toml" in error.next


def test_a_python_that_is_not_there(node: Node, root: Path) -> None:
    error = failure(root, place(node, python="/opt/it's/python"))
    assert isinstance(error, NodeError)
    assert error.what == "dgx1 has no /opt/it's/python"
    assert "Python 3.10" in error.wanted
    error = failure(root, place(node, python="python3.99"))
    assert error.what == "dgx1 has no python3.99"


def test_a_path_with_everything_in_it(node: Node, root: Path) -> None:
    assert look(root, place(node, store=AWKWARD)) == NOTHING
    assert node.path(f"{AWKWARD}/agent/{pack.name()}/sparkbuild").is_dir()


def test_nothing_of_the_request_is_in_the_command_line(node: Node) -> None:
    for command in (pack.start_command("/usr/bin/python3", "facts"), pack.unpack_command("python3")):
        assert STORE not in command
        assert "\n" not in command
        assert node.name not in command


def test_a_store_that_cannot_be_written_to(node: Node, root: Path) -> None:
    node.add_user("kim")
    error = failure(root, place(node, user="kim", store="/srv/private/store"))
    assert isinstance(error, NodeError)
    assert error.what == "the store cannot be written to"
    assert error.where == "node dgx1, /srv/private"
    assert error.found == "Permission denied, as user kim"
    assert "owned by kim" in error.next


def test_a_full_disk(node: Node, root: Path) -> None:
    node.fill_disk()
    try:
        error = failure(root, place(node))
    finally:
        node.free_disk()
    assert error.what == "the store cannot be written to"
    assert "No space left" in error.found
    assert look(root, place(node)) == NOTHING


# -- files that are sent -----------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(9_000_000))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_put(node: Node, root: Path, source: Path) -> None:
    seen: list[dict[str, Any]] = []
    with reached(root, {"dgx1": place(node)}) as nodes:
        agent = nodes.agent("dgx1")
        assert agent.put("artifacts/x y/w.bin", str(source), sha256(source), seen.append) == 9_000_000
        assert seen[-1] == {"event": "progress", "phase": "send", "bytes": 9_000_000, "total": 9_000_000}
        there = node.path(f"{STORE}/artifacts/x y/w.bin")
        assert there.read_bytes() == source.read_bytes()
        assert there.stat().st_mode & 0o777 == 0o444
        there.with_name("w.bin.part").write_bytes(source.read_bytes()[:4_000_000])
        assert agent.put("artifacts/x y/w.bin", str(source), sha256(source)) == 5_000_000, "it goes on where it was"
        assert there.read_bytes() == source.read_bytes()


def test_put_of_something_else(node: Node, root: Path, source: Path) -> None:
    with reached(root, {"dgx1": place(node)}) as nodes:
        agent = nodes.agent("dgx1")
        with pytest.raises(IntegrityError, match="arrived as something else"):
            agent.put("a/w.bin", str(source), "0" * 64)
        assert sorted(os.listdir(node.path(f"{STORE}/a"))) == [".lock"]
        with pytest.raises(SparkbuildError, match="only into the store"):
            agent.put("../w.bin", str(source), sha256(source))
        with pytest.raises(SparkbuildError, match="only into the store"):
            agent.put("/srv/w.bin", str(source), sha256(source))


def test_put_that_is_cut_off_goes_on(node: Node, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparkbuild.nodes.rpc import agent as rpc  # noqa: PLC0415

    class LeaveError(Exception):
        pass

    def some(path: str, offset: int, _size: int) -> Iterator[bytes]:
        yield Path(path).read_bytes()[offset : offset + 3_000_000]
        raise LeaveError

    with reached(root, {"dgx1": place(node)}) as nodes:
        agent = nodes.agent("dgx1")
        with monkeypatch.context() as patched:
            patched.setattr(rpc, "pieces", some)
            with pytest.raises(LeaveError):
                agent.put("a/w.bin", str(source), sha256(source))
        wait_for_agents(node, 0, "put")
        assert agent.put("a/w.bin", str(source), sha256(source)) == 6_000_000
    assert sha256(node.path(f"{STORE}/a/w.bin")) == sha256(source)


def test_put_over_a_link_that_is_cut(node: Node, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, patience in ((link, 2.0), (sshexec, 4.0)):
        monkeypatch.setattr(module, "PULSE", 0.5)
        monkeypatch.setattr(module, "PATIENCE", patience)
    with reached(root, {"dgx1": place(node)}) as nodes:
        agent = nodes.agent("dgx1")
        agent.call("facts", LOOK)
        node.rate(16)  # 2 MB/s
        threading.Timer(1.0, node.cut).start()
        began = time.monotonic()
        try:
            with pytest.raises(NodeError, match="lost the connection to dgx1"):
                agent.put("a/w.bin", str(source), sha256(source))
            assert time.monotonic() - began < 12
            wait_for_agents(node, 0, "put")
        finally:
            node.heal()
            node.rate(None)
        assert agent.put("a/w.bin", str(source), sha256(source)) < 9_000_000, "it goes on where it was"


def test_put_of_a_file_that_becomes_shorter(
    node: Node, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = sha256(source)
    with reached(root, {"dgx1": place(node), "local": Place("local", ".sparkbuild/node")}) as nodes:
        for name in ("dgx1", "local"):
            with monkeypatch.context() as patched:
                patched.setattr("os.path.getsize", lambda _path: 9_000_001)
                with pytest.raises(IntegrityError, match="became shorter"):
                    nodes.agent(name).put("a/w.bin", str(source), digest)
            wait_for_agents(node, 0, "put")
            nodes.agent(name).put("a/w.bin", str(source), digest)
            place_of = node.path(STORE) if name == "dgx1" else root / ".sparkbuild/node"
            assert sha256(place_of / "a/w.bin") == digest


def test_put_onto_a_full_disk(node: Node, root: Path, source: Path) -> None:
    with reached(root, {"dgx1": place(node)}) as nodes:
        nodes.agent("dgx1").call("facts", LOOK)
        node.fill_disk(leave_bytes=2_000_000)
        try:
            with pytest.raises(SparkbuildError) as raised:
                nodes.agent("dgx1").put("a/w.bin", str(source), sha256(source))
        finally:
            node.free_disk()
        assert raised.value.what == "No space left on device"
        assert not node.path(f"{STORE}/a/w.bin").exists()


def test_an_artifact_of_an_offline_node_is_sent(node: Node, root: Path, source: Path) -> None:
    spec = ArtifactSpec(filename="weights.bin", sha256=sha256(source), wheel="", url=f"file:{source}")
    goal = artifact_goal("dgx1", "demo", "weights", spec)
    here = artifact_goal("local", "demo", "weights", spec)
    places = {"local": Place("local", ".sparkbuild/node"), "dgx1": place(node, offline=True)}
    nodes = Nodes(root, places)
    shown: list[Progress] = []
    try:
        run = Run(root=root, log=root / "log", agent=nodes.agent, report=shown.append)
        kind = ArtifactKind(str(root), nodes)
        assert kind.apply(here, Verdict(RUN, (), None), run) == 9_000_000
        assert kind.apply(goal, Verdict(RUN, (), None), run) == 9_000_000
        query = {"scheme": "artifact", **kind.query(goal)}
        for name in places:
            assert nodes.agent(name).call("facts", {"queries": [query]})["facts"][0]["present"]
        assert any(one.phase == "send to dgx1" for one in shown)
    finally:
        nodes.close()
