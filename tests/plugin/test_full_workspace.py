"""A workspace on a disk that is full or read-only: lanes can be stopped, and every command says what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.driver import call
from tests.agent.lane.test_launch_stop import ENGINE
from tests.agent.lane.test_unread import free_port
from tests.workspace_tool import DODO, Tool, is_alive

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


class Space:
    """A workspace on a small file system, its store elsewhere, with a lane of a recipe that is gone."""

    def __init__(self, root: Path, store: Path) -> None:
        self.root, self.store = root, store
        self.doit = Tool(root)
        (root / "dodo.py").write_text(
            DODO + '\ndef task_touch():\n    return {"actions": [Proc(["true"])]}\n'
            '\ndef task_group():\n    return {"actions": None, "task_dep": []}\n'
        )
        (root / "config.toml").write_text(
            f'[nodes.local]\nconnection = "local"\nstore = "{store}"\n\n[clusters.local]\nnodes = ["local"]\n'
        )

    def launch(self) -> int:
        engine, port = self.store.parent / "engine.py", free_port()
        engine.write_text(ENGINE)
        fixed = {"launch": "l1", "rank": 0, "world_size": 1, "key": "k", "parts": {}, "host": "127.0.0.1", "env": {}}
        fixed |= {"argv": [sys.executable, str(engine), str(port)], "port": port, "model_id": "m", "lock": "x@1"}
        answer = call("launch", {**fixed, "store": str(self.store), "recipe": "demo", "protect": False})
        return int(answer.last["record"]["pid"])


@pytest.fixture(params=["full", "read-only"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Space]:
    root, store = tmp_path / "space", tmp_path / "store"
    root.mkdir()
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", root], check=True)
    here = Space(root, store)
    try:
        here.doit.ok("list")
        here.doit.ok("touch")
        if request.param == "full":
            subprocess.run(["dd", "if=/dev/zero", f"of={root}/filler", "bs=4k"], check=False, capture_output=True)
            assert os.statvfs(root).f_bavail == 0
        else:
            subprocess.run(["mount", "-o", "remount,ro", root], check=True)
        yield here
    finally:
        call("stop", {"store": str(store), "recipe": "demo", "grace": 0, "docker": ""})
        subprocess.run(["umount", "-l", root], check=True)


def test_a_lane_is_stopped_with_a_warning(space: Space) -> None:
    pid = space.launch()
    assert is_alive(pid)
    done = space.doit.ok("stop:demo")
    assert not is_alive(pid)
    assert f"stopped process {pid}" in done.out
    # state files that were there already may still be written on a full disk: then there is nothing to warn of
    assert "the workspace cannot be written to" in done.text or (space.root / "filler").exists()


@pytest.mark.parametrize("words", [["list"], ["status"], ["health"], ["plan"], ["status", "--json"], ["help"]])
def test_what_only_looks_works(space: Space, words: list[str]) -> None:
    space.launch()
    done = space.doit(*words)
    assert "Traceback" not in done.text
    assert done.code == 0, done
    if "--json" in words:
        assert json.loads(done.out)["lanes"][0]["recipe"] == "demo"


@pytest.mark.parametrize("words", [["touch"], ["-a", "touch"], ["forget", "touch"], ["-n", "2", "touch"]])
def test_what_writes_says_so(space: Space, words: list[str]) -> None:
    done = space.doit(*words)
    assert "Traceback" not in done.text, done
    assert done.code != 2, "an error of sparkbuild itself"
    if done.code:
        assert "the workspace cannot be written to" in done.text, done
        assert "next:" in done.text


def test_a_group_that_has_nothing_to_do_is_no_failure(space: Space) -> None:
    done = space.doit.ok("group")
    assert "could not be noted" not in done.text, done


def test_a_task_that_is_none_is_told(space: Space) -> None:
    done = space.doit.fails("serve:none")
    assert done.code == 3, done
    assert "there is no task 'serve:none'" in done.err
    assert "next:" in done.err


def test_what_cannot_be_forgotten_is_not_said_to_be(space: Space) -> None:
    """State that cannot be read counts as empty, of which there is nothing to forget."""
    done = space.doit("forget", "touch")
    assert ("forgetting touch" in done.out) == (done.code == 0), done
    if (space.root / "filler").exists():
        return  # its state file has room for a change of what is in it
    assert (done.code, done.out) == (3, "")
    assert "the workspace cannot be written to" in done.text
