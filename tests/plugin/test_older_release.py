"""A release that still runs on a node, and what it left: this one works beside it, and loses nothing.

The release of 2026-11-30 is taken from this repository's own history, and run as it was: its doit, its agents.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

from tests.plugin.demo import Demo
from tests.plugin.tiny import tiny
from tests.workspace_tool import REPOSITORY, Tool, finish, until

COMMIT = "e8fe18fd5e3592e286db8253ac201a518c7c35cc"
SIZES = {"a.bin": 40 << 20, "b.bin": 400 << 20}  # bytes of data: half a second to stage
BLOCK = """
[[staging]]
id = "data"
kind = "files"
src = "{src}"
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the earlier package: in PYTHONPATH it comes before the one that is installed."""
    git = ["git", "-C", str(REPOSITORY)]
    if subprocess.run([*git, "cat-file", "-e", COMMIT], capture_output=True, check=False).returncode:
        pytest.skip(f"the history of this clone does not reach back to {COMMIT[:9]}")
    packed = subprocess.run([*git, "archive", COMMIT, "sparkbuild", "pyproject.toml"], capture_output=True, check=True)
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    # doit finds our commands by the entry points of an installed distribution
    groups = tomli.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "sparkbuild-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sparkbuild\nVersion: 0.0.0\n")
    lines = [line for group, names in groups.items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def before(tool: Tool, release: Path) -> Tool:
    """The earlier doit in the same workspace."""
    return Tool(tool.root, {**tool.env, "PYTHONPATH": str(release)})


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """A workspace with a block of plain data to stage."""
    source = tmp_path / "source"
    source.mkdir()
    block = os.urandom(4 << 20)
    for name, size in SIZES.items():
        with open(source / name, "wb") as file:
            file.writelines(block for _ in range(size // len(block)))
    return tiny(tmp_path / "workspace", BLOCK.format(src=source))


def agents(release: Path) -> list[int]:
    """The earlier release's agents that stage."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if str(release).encode() in words and b"stage" in words:
                pids.append(int(entry.name))
    return pids


@pytest.fixture
def halted(tool: Tool, release: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The earlier doit, and its agent, which stands still in the middle of staging."""
    doit = before(tool, release).start("stage:r0")
    draft = tool.root / ".sparkbuild/node/staged/r0/data/.sparkbuild/draft.jsonl"
    until(lambda: draft.exists() and "a.bin" in draft.read_text())
    (agent,) = agents(release)
    os.kill(agent, signal.SIGSTOP)
    try:
        yield doit, agent
    finally:
        for pid in (doit.pid, agent):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        doit.wait()
        for stream in (doit.stdout, doit.stderr):
            if stream is not None:
                stream.close()


def said(doit: subprocess.Popen[str]) -> str:
    """What a doit that goes on has said since it was last asked."""
    text = b""
    for stream in (doit.stdout, doit.stderr):
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            text += os.read(stream.fileno(), 1 << 16)
        os.set_blocking(stream.fileno(), True)
    return text.decode()


def test_beside_an_agent_of_an_earlier_release_that_stages(
    tool: Tool, halted: tuple[subprocess.Popen[str], int]
) -> None:
    doit, agent = halted
    tool.ok("status")
    assert tool.states("stage:r0") == {"stage:r0:local:data": "run"}
    second = tool.start("stage:r0")
    until(lambda: f"process {doit.pid} " in said(second), 60)
    os.kill(agent, signal.SIGCONT)
    assert finish(doit).code == 0
    waited = finish(second)
    assert waited.code == 0, waited
    assert sum(entry["bytes"] for entry in tool.runs() if entry["event"] == "made") == sum(SIZES.values()), (
        "nothing is staged twice"
    )
    assert tool.states("stage:r0") == {"stage:r0:local:data": "ok"}
    tool.ok("verify", "stage:r0")


def test_what_an_agent_of_an_earlier_release_left_half_staged_is_gone_on_with(
    tool: Tool, halted: tuple[subprocess.Popen[str], int]
) -> None:
    doit, agent = halted
    for pid in (doit.pid, agent):
        os.kill(pid, signal.SIGKILL)
    doit.wait()
    tool.ok("status")
    (goal,) = tool.plan("stage:r0").values()
    assert goal["state"] == "run"
    assert goal["bytes"] == SIZES["b.bin"], "what is there is not moved again"
    tool.ok("stage:r0")
    (made,) = (entry for entry in tool.runs() if entry["event"] == "made" and entry["task"].startswith("stage:"))
    assert made["bytes"] <= SIZES["b.bin"]
    tool.ok("verify", "stage:r0")


def test_a_lane_that_an_earlier_release_serves_goes_on(idle: Demo, release: Path) -> None:
    before(idle, release).ok("serve:demo")
    pid = idle.pid
    assert pid
    assert idle.status()["state"] == "serving"
    again = idle.ok("serve:demo")
    assert "made" not in again.out.splitlines()[-1], again
    assert idle.pid == pid
    idle.ok("logs", "demo")
    idle.ok("stop:demo")
    assert not idle.engines()
