"""Records that cannot be read, and lanes that none of this store's names: each is a row, and hides no other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.lane import records
from tests.agent.driver import Answer, call
from tests.agent.lane.test_launch_stop import ENGINE
from tests.agent.machine.test_denied import NOBODY
from tests.workspace_tool import until

_USED = (
    "facts",
    "node",
    "lane.records",
    "lane.launch",
    "lane.stop",
    "lane.unread",
    "lane.uses",
    "docker.fact",
    "machine.denied",
    "docker.unixhttp",
    "lane.ports",
)
# what is imported later may lie where only root may read
AS_NOBODY = "import encodings.ascii, encodings.idna, subprocess, socket; "
AS_NOBODY += "import sparkbuild.agent." + ", sparkbuild.agent.".join(_USED) + "; " + NOBODY
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


class Place:
    """Two stores in a folder that everybody may enter, and an engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.engine = folder / "engine.py"
        self.engine.write_text(ENGINE.replace('"127.0.0.1", int(port)', '"0.0.0.0", int(port)'))

    def launch(self, store: str = "store", recipe: str = "demo", **more: Any) -> Answer:
        fixed = {"launch": "l1", "rank": 0, "world_size": 1, "key": "k", "parts": {"port": 1}, "host": "127.0.0.1"}
        fixed |= {"argv": [sys.executable, str(self.engine), str(self.port)], "env": {}, "port": self.port}
        own = {"store": str(self.folder / store), "recipe": recipe, "model_id": "m", "lock": "x@1", "docker": ""}
        return call("launch", {**fixed, **own, "protect": False}, **more)

    def fact(self, store: str = "store", recipe: str = "demo", shim: str = "", **more: Any) -> dict[str, Any]:
        query = {"scheme": "lane", "recipe": recipe, "port": self.port, **more}
        answer = call("facts", {"store": str(self.folder / store), "docker": "", "queries": [query]}, shim=shim)
        assert answer.code == 0, answer.events
        found: dict[str, Any] = answer.last["facts"][0]
        return found

    def node(self, store: str = "store", shim: str = "") -> dict[str, Any]:
        query = {"scheme": "node", "docker": "/none"}
        answer = call("facts", {"store": str(self.folder / store), "queries": [query]}, shim=shim)
        found: dict[str, Any] = answer.last["facts"][0]
        return found

    def stop(self, store: str = "store", recipe: str = "demo", shim: str = "") -> Answer:
        return call("stop", {"store": str(self.folder / store), "docker": "", "recipe": recipe, "grace": 1}, shim=shim)

    def file(self, recipe: str = "demo", store: str = "store") -> Path:
        return self.folder / store / "lanes" / recipe / "lane.json"


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        here = Place(Path(made))
        yield here
        for store in ("store", "other"):
            for recipe in ("demo", "glm"):
                here.stop(store, recipe)


ODD: dict[str, str] = {
    "nothing": "",
    "cut off": '{"format": "sparkbuild-lane/v1", "recipe"',
    "a list": "[]",
    "tables without end": '{"x":' * 50_000,
    "of another version": '{"format": "sparkbuild-lane/v9"}',
    "without parts": '{"format": "sparkbuild-lane/v1", "recipe": "glm", "pid": 1}',
    "parts that are a list": '{"format": "sparkbuild-lane/v1", "parts": [], "pid": 1, "runtime": "docker"}',
    "a pid that is text": json.dumps({
        "format": "sparkbuild-lane/v1", "parts": {}, "pid": "1", "start_ticks": 1, "boot_id": "x", "log": "x",
    }),
    "an argv of numbers": json.dumps({
        "format": "sparkbuild-lane/v1", "parts": {}, "pid": 1, "start_ticks": 1, "boot_id": "x", "log": "x",
        "argv": [1],
    }),
}  # fmt: skip


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_what_is_no_record_is_a_row_of_its_own(place: Place, text: str) -> None:
    assert place.launch().code == 0
    place.file("glm").parent.mkdir()
    place.file("glm").write_text(text)
    until(lambda: place.fact()["answers"])
    fact = place.fact()
    assert fact["alive"]
    assert len(fact["unread"]) == 1
    assert fact["unread"][0]["text"].startswith("the record of lane glm is none (")
    assert str(place.file("glm")) in fact["unread"][0]["text"]
    assert fact["unread"][0]["recipe"] == "glm"
    odd = place.fact(recipe="glm")
    assert (odd["record"], odd["alive"], odd["others"]) == (None, False, ["demo"])
    node = place.node()
    assert [row["recipe"] for row in node["lanes"]] == ["demo"]
    assert node["unread"] == fact["unread"]
    assert place.stop(recipe="glm").code == 0


@root_only
def test_the_lane_of_another_user_in_the_same_store(place: Place) -> None:
    assert place.launch().code == 0  # as root
    mine = place.fact(recipe="glm", shim=AS_NOBODY)
    assert (mine["record"], mine["alive"]) == (None, False)
    (row,) = mine["unread"]
    text = row["text"]
    assert text.startswith("lane demo is of user root since 20")
    assert row["recipe"] == "demo"  # and not the one that was asked about
    same = place.fact(shim=AS_NOBODY)
    assert "alive" not in same
    assert same["problem"].startswith(text)
    assert "chown" not in same["problem"]
    assert "a `store` of your own" in same["problem"]
    node = place.node(shim=AS_NOBODY)
    assert (node["lanes"], node["unread"]) == ([], [row])
    stopped = place.stop(shim=AS_NOBODY)
    assert stopped.code == 1
    assert stopped.last["what"] == text
    until(lambda: place.fact()["answers"])
    assert place.fact()["port_holder"] is None
    assert place.stop().last["stopped"]


@root_only
@pytest.mark.parametrize("which", ["the record", "its folder"])
def test_a_record_that_somebody_else_wrote_is_not_gone_by(place: Place, which: str) -> None:
    """In a store that others may write to: it may name any process, and we would end that."""
    assert place.launch().code == 0
    until(lambda: place.fact()["answers"])
    folder = place.folder / "store/lanes/demo"
    theirs = folder / "lane.json" if which == "the record" else folder
    (folder / "lane.json").chmod(0o644)
    os.chown(theirs, 65534, 65534)
    seen = place.fact()
    assert "alive" not in seen
    assert seen["problem"].startswith("lane demo is of user nobody since 20")
    assert "whose record is not gone by" in seen["problem"]
    stopped = place.stop()
    assert stopped.code == 1
    assert stopped.last["what"].startswith("lane demo is of user nobody since 20")
    assert place.launch().code == 1
    os.chown(theirs, 0, 0)
    assert place.fact()["answers"], "it was not ended"
    assert place.stop().last["stopped"]


@root_only
def test_a_store_that_others_use_is_not_to_be_taken(place: Place) -> None:
    assert place.launch().code == 0
    request = {"store": str(place.folder / "store"), "sha256": "a" * 64, "filename": "x", "wheel": "", "url": "file:x"}
    shim = "import sparkbuild.agent.store.fetch, sparkbuild.agent.machine.denied, sparkbuild.agent.machine.oserrors; "
    error = call("fetch", {**request, "root": "/"}, shim=shim + NOBODY).last
    assert "chown" not in error["next"]
    assert error["next"] == "name another `store` for this node in config.toml"
    assert "root has lanes since 20" in error["found"]


def test_a_process_lane_of_another_store(place: Place) -> None:
    pid = place.launch("other").last["record"]["pid"]
    until(lambda: place.fact("other")["answers"])
    fact = place.fact()
    (lane,) = fact["elsewhere"]
    store = str(place.folder / "other")
    assert lane | {"since": 0.0, "user": "", "gpus": False} == {
        "recipe": "demo", "pid": pid, "user": "", "store": store, "ours": False, "ports": [place.port], "since": 0.0,
        "gpus": False,
    }  # fmt: skip
    assert lane["since"] > 1.7e9
    assert [one["pid"] for one in place.node()["elsewhere"] if one["store"] == store] == [pid]
    assert "elsewhere" not in place.fact("other"), "to its own store it is no stranger"
    done = place.stop().last
    assert (done["stopped"], [one["pid"] for one in done["elsewhere"] if one["store"] == store]) == (False, [pid])
    assert place.fact("other")["alive"]


def test_a_process_lane_whose_record_is_gone(place: Place) -> None:
    pid = place.launch().last["record"]["pid"]
    until(lambda: place.fact()["answers"])
    place.file().unlink()
    (lane,) = place.fact()["elsewhere"]
    assert (lane["pid"], lane["ours"]) == (pid, True)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "elsewhere" not in place.fact())


@root_only
def test_a_process_of_another_user_is_said_by_its_uid(place: Place) -> None:
    code = f"import socket, time; s = socket.create_server(('0.0.0.0', {place.port})); print(1, flush=True)"
    code += "; time.sleep(60)"
    argv = ["setpriv", "--reuid=1001", "--clear-groups", "/usr/bin/python3", "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"1\n"
            holder = place.fact(shim=AS_NOBODY)["port_holder"]
            assert holder["pid"] == 0
            assert holder["command"].startswith("a process of uid 1001")
            strangers = place.node(shim=AS_NOBODY)["strangers"]
            assert strangers[str(place.port)].startswith("a process of uid 1001")
            refused = place.launch(
                store="mine",
                shim=f"import os; os.makedirs({str(place.folder / 'mine')!r}, exist_ok=True); "
                f"os.chmod({str(place.folder / 'mine')!r}, 0o777); " + AS_NOBODY,
            )
            assert (refused.code, refused.last["what"]) == (1, f"port {place.port} is in use")
            assert refused.last["found"].startswith("a process of uid 1001")
        finally:
            process.kill()


def test_a_dead_lane_that_is_told_to_stop_is_stopped(place: Place) -> None:
    pid = place.launch().last["record"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not place.fact()["alive"])
    assert place.node()["lanes"][0]["stopped_at"] is None
    assert not place.stop().last["stopped"]
    assert place.node()["lanes"][0]["stopped_at"] > 1.7e9


def test_records_are_read_in_one_place() -> None:
    """Who reads lane.json knows its shape: nobody reads it around `lane/records.py`."""
    folder = Path(records.__file__).parents[1]
    named = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if '"lane.json"' in path.read_text()}
    assert named == {"lane/records.py"}
