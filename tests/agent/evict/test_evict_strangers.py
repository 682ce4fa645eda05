"""What an eviction leaves: files that have the name of a staged one and are not, and what is on other disks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.driver import CHUNK, MIB, ROOT, call, finish, flip, request_for, start
from tests.agent.evict.test_evict import OWNER, evict, inventory, staged

Make = Callable[[str, int], Path]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("how", ["replaced", "written over", "of the same size, time restored"])
def test_a_file_of_the_user_s_own_stays(store: Path, dst: Path, make: Make, how: str) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB), "deep/b.bin": make("b.bin", MIB)})
    own = dst / "deep/b.bin"
    if how == "replaced":
        (dst / "new").write_text("my own")
        (dst / "new").rename(own)
    elif how == "written over":
        own.write_text("my own")
    else:
        flip(own, 7)
    mine = own.read_bytes()
    (done,) = evict(store, dst)
    assert (done["refused"], done["files"], done["left"]) == ("", 1, ["deep/b.bin"])
    assert own.read_bytes() == mine


def test_a_file_that_was_only_touched_goes(store: Path, dst: Path, make: Make) -> None:
    """It holds what was staged, so nothing of the user's is lost."""
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    os.utime(dst / "a.bin")
    (done,) = evict(store, dst)
    assert (done["files"], done["left"]) == (1, [])
    assert not dst.exists()


def test_files_that_others_put_there_after_an_interrupted_staging_stay(store: Path, dst: Path, make: Make) -> None:
    files = {"a.bin": make("a.bin", 2 * MIB), "b.bin": make("b.bin", 9 * CHUNK)}
    request = request_for(dst, files, store=str(store), owner=OWNER)
    slow = "import os, signal; from sparkbuild.agent.ledger.part import Part; "
    slow += "Part.note = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    process = start("stage", request, shim=slow)
    assert finish(process).code == -signal.SIGKILL
    (dst / "a.bin").unlink(missing_ok=True)
    for name, source in files.items():
        (dst / name).write_bytes(source.read_bytes())
    answer = call("stage", request)
    assert (answer.code, answer.last["adopted"]) == (0, 2), answer.events
    assert inventory(store)[0]["adopted"]
    (done,) = evict(store, dst)
    assert "its files were there before" in done["refused"]
    assert sorted(os.listdir(dst)) == [".sparkbuild", "a.bin", "b.bin"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_what_is_on_another_disk_stays(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB), "deep/b.bin": make("b.bin", MIB)})
    script = 'mount -t tmpfs none "$1/deep" && cp "$1/a.bin" "$1/deep/b.bin" && touch "$1/deep/mine" && '
    script += '"$2" -I -c "$3" evict; ls "$1/deep" >&2'
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sparkbuild.agent.main import main; sys.exit(main())"
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(dst), sys.executable, code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stderr is not None
        agent.stdin.write(json.dumps({"store": str(store), "dsts": [str(dst)]}).encode() + b"\n")
        agent.stdin.flush()
        last = json.loads(agent.stdout.read().splitlines()[-1])
        there = agent.stderr.read().decode().split()
    assert there == ["b.bin", "mine"]
    assert last["folders"][0]["left"] == ["deep"], "the mount is named, and not what is in it"
    assert not (dst / "a.bin").exists()
