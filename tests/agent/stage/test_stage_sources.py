"""Sources that fail: a NAS that hiccups is asked again a few times; a file that changed is not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.driver import CHUNK, call, entry, list_of, look_here, sha256

Make = Callable[[str, int], Path]

# Reads of the source fail from the nth on, so many times; `then` runs at the first failure.
FAIL = """
import errno, os
plain, calls, failed = os.preadv, 0, 0
def preadv(fd, *args):
    global calls, failed
    if os.readlink(f"/proc/self/fd/{{fd}}").startswith({path!r}):
        calls += 1
        if calls >= {nth} and failed < {times}:
            failed += 1
            if failed == 1:
                {then}
            raise OSError(errno.{error}, os.strerror(errno.{error}))
    return plain(fd, *args)
os.preadv = preadv
import sparkbuild.agent.disk.nas as nas
nas.PAUSES = (0.01, 0.02, 0.03)
"""


@pytest.mark.parametrize("error", ["EIO", "ESTALE"])
def test_what_passes_is_waited_for(dst: Path, make: Make, error: str) -> None:
    source = make("a.bin", 6 * CHUNK)
    shim = FAIL.format(path=str(source), nth=3, times=3, then="pass", error=error)
    answer = call("stage", list_of(dst, [entry("a.bin", source)]), shim=shim)
    assert answer.code == 0, answer.events
    assert sha256(dst / "a.bin") == sha256(source)


@pytest.mark.parametrize("error", ["EIO", "ESTALE"])
def test_what_stays_is_said_and_nothing_is_lost(dst: Path, make: Make, error: str) -> None:
    source = make("a.bin", 6 * CHUNK)
    shim = FAIL.format(path=str(source), nth=4, times=1000, then="pass", error=error)
    answer = call("stage", list_of(dst, [entry("a.bin", source)]), shim=shim)
    assert (answer.code, answer.last["kind"]) == (1, "node")
    assert answer.last["where"] == str(source)
    assert answer.last["found"].startswith(error)
    assert "run again" in answer.last["next"]
    again = call("stage", list_of(dst, [entry("a.bin", source)])).last
    assert again["read"] <= 4 * CHUNK
    assert look_here(dst)["problems"] == []


def test_a_stale_handle_whose_path_is_another_file_now(dst: Path, make: Make) -> None:
    source = make("a.bin", 6 * CHUNK)
    new = make("new.bin", 6 * CHUNK)
    then = f"os.rename({str(new)!r}, {str(source)!r})"
    shim = FAIL.format(path=str(source), nth=3, times=1, then=then, error="ESTALE")
    answer = call("stage", list_of(dst, [entry("a.bin", source)]), shim=shim)
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    assert answer.last["what"] == "the source was changed while it was being read"
    assert not (dst / "a.bin").exists()
    assert list(dst.glob(".sparkbuild/*.part")) == []


def test_an_early_end_says_what_to_do(dst: Path, make: Make) -> None:
    """A NAS that gives less than it says: the size is as before, and a read comes to an end."""
    source = make("a.bin", 3 * CHUNK)
    shim = f"""
import os
plain = os.preadv
def preadv(fd, views, offset, *rest):
    if os.readlink(f"/proc/self/fd/{{fd}}").startswith({str(source)!r}) and offset >= {CHUNK}:
        return 0
    return plain(fd, views, offset, *rest)
os.preadv = preadv
"""
    answer = call("stage", list_of(dst, [entry("a.bin", source)]), shim=shim)
    assert answer.last["what"] == "the source of a.bin ends too soon"
    assert (answer.last["where"], answer.last["wanted"]) == (str(source), f"{3 * CHUNK} bytes")
    assert "and fetch it anew; then run again" in answer.last["next"]
