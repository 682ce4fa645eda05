"""The agent ends when it hears nothing: a caller behind a dead link closes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

from sparkbuild.agent.wire.frames import SELF, SERVE, frame
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
