"""The agent ends when it hears nothing: a caller behind a dead link closes nothing. Looks that hang are left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.disk import patience, questions
from sparkbuild.agent.wire.frames import SELF, frame
from sparkbuild.agent.wire.protocol import SERVE
from tests.agent import driver

FIRST = SELF + 1  # number of the first request

HANG = """
import sys, time, types
import sparkbuild.agent.main as main
hang = types.ModuleType("sparkbuild.agent.hang")
def run(request, reporter):
    reporter.log("at work")
    time.sleep(60)
hang.run = run
sys.modules["sparkbuild.agent.hang"] = hang
main.VERBS["hang"] = "hang"
"""


def test_it_ends_when_nothing_is_heard_and_stays_while_something_is() -> None:
    with driver.start(SERVE, {"patience": 0.6}, shim=HANG) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(frame(FIRST, "run", "hang") + frame(FIRST, "in", b"{}\n"))
        process.stdin.flush()
        while b"at work" not in process.stdout.readline():
            assert process.poll() is None
        for _ in range(8):
            time.sleep(0.2)
            process.stdin.write(b"\n")
            process.stdin.flush()
        assert process.poll() is None
        process.wait(timeout=5)


def test_a_transfer_that_stops(tmp_path: Path) -> None:
    request = json.dumps({"store": str(tmp_path), "path": "a/x", "sha256": "0" * 64, "size": 10})
    with driver.start(SERVE, {"patience": 0.5}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(frame(FIRST, "run", "put") + frame(FIRST, "in", f"{request}\n"))
        process.stdin.flush()
        while b'"offset":0' not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.write(frame(FIRST, "in", b"12345"))
        process.stdin.flush()
        process.wait(timeout=5)
    assert (tmp_path / "a/x.part").read_bytes() == b"12345", "the next try goes on from there"


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What a look waits for that hangs; it goes on when the test has ended."""
    for name, value in (("LOOK", 0.3), ("AFTER", 0.2), ("_given_up", []), ("_hurries", []), ("_idle", [])):
        monkeypatch.setattr(patience, name, value)
    event = threading.Event()
    yield event
    event.set()


def test_of_several_looks_the_one_that_hangs_is_left(hung: threading.Event) -> None:
    """Those behind it are carried out, another one at the same folder is not begun, an error is that look's alone."""
    seen: list[str] = []

    def hang() -> None:
        with questions.asking("/nas/b/file"):
            hung.wait(20)
        seen.append("hung")

    def fail() -> None:
        raise KeyError("c")

    looks = [(lambda: seen.append("a"), "/nas/a"), (hang, "/nas/b"), (fail, "/nas/c")]
    looks += [(lambda: seen.append("b"), "/nas/b"), (lambda: seen.append("d"), "/nas/d")]
    first, left, failed, same, last = (outcome.error for outcome in patience.each(looks))
    assert seen == ["a", "d"]
    assert (first, last) == (None, None)
    assert isinstance(left, patience.SilentError)
    assert left.fields["where"] == "/nas/b/file"
    assert isinstance(failed, KeyError)
    assert isinstance(same, patience.SilentError)
    assert same.fields["where"] == "/nas/b"


def test_a_look_that_waits_for_what_nobody_noted_is_left_too(hung: threading.Event) -> None:
    left, last = (outcome.error for outcome in patience.each([(lambda: hung.wait(20), "/nas/a"), (int, "/nas/b")]))
    assert isinstance(left, patience.SilentError)
    assert left.fields["where"] == "/nas/a"
    assert last is None
