"""Files written whole: what killed writers left goes, and what others are writing stays."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparkbuild.core import wholefile
from sparkbuild.nodes.ssh import hostkeys
from sparkbuild.nodes.ssh.hostkeys import HostKey
from sparkbuild.workspace.files import wholefile as workspacefile
from tests.engine import ROOT

# Writes the beginning of a file, says so, and then waits for its end.
WRITER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from sparkbuild.core import wholefile
real = os.fsync
def slow(fd):
    print("begun", flush=True)
    sys.stdin.read()
    real(fd)
os.fsync = slow
wholefile.replace(sys.argv[2], b"theirs", ours=True)
"""


class Writer:
    """Another operator, in the middle of writing."""

    def __init__(self, path: Path) -> None:
        argv = [sys.executable, "-c", WRITER, str(ROOT), str(path)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"begun\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    Writer(tmp_path / "a.json").kill()
    assert len(names(tmp_path)) == 1
    wholefile.replace(tmp_path / "b.json", b"ours", ours=True)
    assert names(tmp_path) == ["b.json"]


def test_what_another_one_writes_just_now_stays(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.json")
    wholefile.replace(tmp_path / "a.json", b"ours", ours=True)
    wholefile.replace(tmp_path / "b.json", b"ours", ours=True)
    assert (tmp_path / "a.json").read_bytes() == b"ours"
    assert writer.end() == 0
    assert (tmp_path / "a.json").read_bytes() == b"theirs"
    assert names(tmp_path) == ["a.json", "b.json"]


def test_in_a_folder_of_somebody_only_what_was_to_become_this_file_goes(tmp_path: Path) -> None:
    for name in ("recipe.toml.71.tmp", "mine.71.tmp", "recipe.toml.tmp", "recipe.toml.x.tmp"):
        (tmp_path / name).write_text("left")
    workspacefile.replace(tmp_path / "recipe.toml", "new")
    assert names(tmp_path) == ["mine.71.tmp", "recipe.toml", "recipe.toml.tmp", "recipe.toml.x.tmp"]
    (tmp_path / "known_hosts.71.tmp").write_text("left")
    hostkeys.record(str(tmp_path / "known_hosts"), "dgx1", HostKey("ssh-ed25519", "a2tr" * 10))
    assert "known_hosts.71.tmp" not in names(tmp_path)


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            wholefile.replace(tmp_path / "a", bytes([number]) * 1000, ours=True, flush=False)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["a"]
    assert len(set((tmp_path / "a").read_bytes())) == 1


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        wholefile.replace(tmp_path / "a", b"new", ours=True)
    assert raised.value.filename == str(tmp_path / "a")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_one_place_gives_a_file_its_name_when_it_is_whole() -> None:
    """On this side: what the agent writes is held by Held.replace. Folders have their names by other rules."""
    may = {"core/wholefile.py", "core/statefile.py", "workspace/init.py", "bench/package.py"}  # the last three: folders
    for path in sorted((ROOT / "sparkbuild").rglob("*.py")):
        name = str(path.relative_to(ROOT / "sparkbuild"))
        if name.startswith("agent/") or name in may:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr not in {"rename", "replace"}, f"{name}:{node.lineno}: see core/wholefile.py"
