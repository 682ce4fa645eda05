"""The agent ends when it hears nothing: a caller behind a dead link closes nothing."""

from __future__ import annotations

import time
from pathlib import Path

from tests.agent import driver

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
    with driver.start("hang", {"patience": 0.6}, shim=HANG) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"at work" in process.stdout.readline()
        for _ in range(8):
            time.sleep(0.2)
            process.stdin.write(b"\n")
            process.stdin.flush()
        assert process.poll() is None
        process.wait(timeout=5)


def test_a_transfer_that_stops(tmp_path: Path) -> None:
    request = {"store": str(tmp_path), "path": "a/x", "sha256": "0" * 64, "size": 10, "patience": 0.5}
    with driver.start("put", request) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b'"offset":0' in process.stdout.readline()
        process.stdin.write(b"12345")
        process.stdin.flush()
        assert process.wait(timeout=5) == 143
    assert (tmp_path / "a/x.part").read_bytes() == b"12345", "the next try goes on from there"
