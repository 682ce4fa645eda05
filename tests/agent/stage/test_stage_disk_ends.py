"""A disk that takes no more in the middle: no bytes, no inodes; and files that nobody may change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import CHUNK, MIB, call, flip, look, problems, request_for, sha256

Make = Callable[[str, int], Path]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or make a file immutable")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk."""
    folder = tmp_path / "small"

    def mount(options: str) -> Path:
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", folder], check=True)
        return folder

    yield mount
    if folder.is_dir():
        subprocess.run(["umount", folder], check=True)


def wanted(dst: Path, files: dict[str, Path], how: str) -> dict[str, Any]:
    request = request_for(dst, files, "b", streams=1)
    for item in request["what"]["files"]:
        if item["name"] == "c.bin" and how == "its source is another":
            item["source"]["id"] = "another"
    return request


@pytest.mark.parametrize("how", ["one chunk is bad", "its source is another"])
def test_a_damaged_file_keeps_its_name_when_a_later_one_has_no_room(
    small: Callable[[str], Path], make: Make, how: str
) -> None:
    dst = small("size=64m") / "staged"
    first = {"a.bin": make("a.bin", 3 * CHUNK), "c.bin": make("c.bin", 2 * CHUNK)}
    assert call("stage", request_for(dst, first)).code == 0
    later = {**first, "b.bin": make("b.bin", 3 * CHUNK)}
    flip(dst / "c.bin", 7)
    full = "import errno, os; from sparkbuild.agent.ledger.part import Part\n"
    full += "note = Part.note\ndef noted(self, index, value):\n"
    full += "    if self.name == 'b.bin': raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)\n"
    full += "    note(self, index, value)\nPart.note = noted"
    # one stream: b.bin, which has no room, comes before c.bin or after it
    for names in (["a.bin", "b.bin", "c.bin"], ["a.bin", "c.bin", "b.bin"]):
        request = wanted(dst, {name: later[name] for name in names}, how)
        answer = call("stage", request, shim=full)
        assert (answer.code, answer.last["kind"]) == (1, "space"), answer.events
        assert (dst / "c.bin").exists(), f"{names}: {answer.logs}"
        assert sha256(dst / "a.bin") == sha256(first["a.bin"])
    assert call("stage", wanted(dst, later, how)).code == 0
    assert problems(look(dst, "b" * 64)) == []


def test_a_mend_that_stops_in_the_middle_gives_the_file_its_name_back(small: Callable[[str], Path], make: Make) -> None:
    """And what was mended by then stays mended."""
    dst = small("size=64m") / "staged"
    source = make("a.bin", 4 * CHUNK)
    request = request_for(dst, {"a.bin": source})
    assert call("stage", request).code == 0
    flip(dst / "a.bin", 7)
    flip(dst / "a.bin", 3 * CHUNK + 7)
    full = "import errno, os; from sparkbuild.agent.ledger.part import Part\n"
    full += "note = Part.note\ndef noted(self, index, value):\n"
    full += "    if index: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)\n"
    full += "    note(self, index, value)\nPart.note = noted"
    answer = call("stage", request, shim=full)
    assert answer.last["kind"] == "space"
    assert (dst / "a.bin").stat().st_size == 4 * CHUNK
    assert not list((dst / ".sparkbuild").glob("*.part"))
    done = call("stage", request)
    assert done.last["bytes"] <= CHUNK, done.events
    assert sha256(dst / "a.bin") == sha256(source)


def test_no_inodes_left_is_told_as_that(small: Callable[[str], Path], make: Make) -> None:
    dst = small("size=64m,nr_inodes=20") / "staged"
    files = {f"{number}.bin": make(f"{number}.bin", 10) for number in range(30)}
    answer = call("stage", request_for(dst, files))
    assert (answer.code, answer.last["kind"]) == (1, "space")
    assert answer.last["what"] == "the disk has no inodes left, so no file can be made while staging"
    assert f" of 20 inodes free on {dst.parent}, and " in answer.last["found"]
    assert f"df -i {dst.parent}" in answer.last["next"]


@pytest.fixture
def fixed() -> Iterator[Callable[[Path, str], None]]:
    """Makes files immutable, until the end of the test."""
    made: list[tuple[Path, str]] = []

    def fix(path: Path, letter: str) -> None:
        done = subprocess.run(["chattr", f"+{letter}", path], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this file system has no such attribute: {done.stderr}")
        made.append((path, letter))

    yield fix
    for path, letter in made:
        subprocess.run(["chattr", f"-{letter}", path], check=True)


@pytest.mark.parametrize(("where", "letter"), [("a.bin", "i"), ("", "i"), ("a.bin", "a")])
def test_what_nobody_may_change_is_named_with_what_to_do(
    dst: Path, make: Make, fixed: Callable[[Path, str], None], where: str, letter: str
) -> None:
    assert call("stage", request_for(dst, {"a.bin": make("a.bin", MIB)})).code == 0
    fixed(dst / where, letter)
    answer = call("stage", request_for(dst, {"b.bin": make("b.bin", MIB)}, "b"))
    assert answer.code == 1
    place = str(dst / where).rstrip("/")
    kind = "immutable (chattr +i)" if letter == "i" else "append-only (chattr +a)"
    assert answer.last["found"] == f"{place} is {kind}: nobody may change it"
    assert f"sudo chattr -{letter} {place}" in answer.last["next"]
    assert answer.last["where"].startswith(str(dst))
