"""`python -m tests.rack`, as a person uses it: each command is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Command = Callable[..., str]


@pytest.fixture
def rack(possible: None, tmp_path: Path) -> Iterator[Command]:  # noqa: ARG001 - a fixture for what it does
    """Runs a command for racks of this test's own; returns what it printed. The rack is down after the test."""
    env = {**os.environ, "SPARKBUILD_RACK_DIR": str(tmp_path / "racks")}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.rack", *words],
            cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    yield run
    if run("status"):
        run("down")
    assert run("status") == ""
    assert list((tmp_path / "racks").glob("[0-9]*")) == []


def test_nodes(rack: Command) -> None:
    assert "no rack is up: python -m tests.rack up" in rack("cut", "dgx1", code=1)
    assert "ssh -F" in rack("up", "1", "--no-docker", "--disk", "64")
    assert "dgx1" in rack("status")
    assert rack("exec", "dgx1", "hostname") == "dgx1\n"
    assert rack("ssh", "dgx1", "hostname") == "dgx1\n"
    rack("fill", "dgx1", "--leave", "1")
    assert "No space" in rack("exec", "dgx1", "dd", "if=/dev/zero", "of=/srv/x", "bs=64k", "count=64", code=1)
    rack("kill", "dgx1")
    assert "off" in rack("status")
    assert "dgx1 is off" in rack("exec", "dgx1", "true", code=1)
    rack("boot", "dgx1")
    assert "SHA256:" in rack("rotate-key", "dgx1")
    assert "no node dgx7" in rack("heal", "dgx7", code=1)


@pytest.mark.usefixtures("nas_python")
def test_nas(rack: Command, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10_000))
    rack("up", "1", "--no-docker")
    rack("nas", "mount", "dgx1", str(tmp_path), "/mnt/nas", "--latency", "1", "--rate", "50")
    assert rack("exec", "dgx1", "wc", "-c", "/mnt/nas/x") == "10000 /mnt/nas/x\n"
    rack("nas", "fail", "/x", "EIO", "5000", "--times", "1")
    assert "Input/output error" in rack("exec", "dgx1", "cat", "/mnt/nas/x", code=1)
    assert len(rack("exec", "dgx1", "cat", "/mnt/nas/x")) == 10_000
    # The page before the one with the fault was read twice.
    assert "dgx1" in rack("nas", "reads")
    assert "14,096 bytes  /x" in rack("nas", "reads")
    rack("nas", "unmount", "dgx1", "/mnt/nas")
    assert "no NAS is mounted at /mnt/nas of dgx1" in rack("nas", "unmount", "dgx1", "/mnt/nas", code=1)
