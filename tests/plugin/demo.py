"""The demo of this repository in a workspace of its own, served for real: its engine, its weights, its environment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.engine import ROOT, free_port
from tests.workspace_tool import Done, Tool, bare, is_alive, until

RECIPE = "recipes/demo/recipe.toml"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHUNK = 4 << 20
GOALS = ("image:llamacpp", "artifact:demo:smollm2", "stage:demo:local:weights", "serve:demo")
_CONTENT = ("images", "recipes/demo", "locks")


class Demo(Tool):
    """doit in a workspace that holds the demo. A copy starts without a lane and with a port of its own."""

    def __init__(self, root: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(root, env)
        self.store = root / ".sparkbuild/node"
        self.staged = self.store / "staged/demo/weights" / GGUF
        self.artifacts = self.store / "artifacts"

    @property
    def record(self) -> dict[str, Any]:
        """What is recorded of the lane; empty when nothing is."""
        try:
            found: dict[str, Any] = json.loads((self.store / "lanes/demo/lane.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    @property
    def pid(self) -> int:
        """The process of the lane, 0 when it does not run."""
        pid = int(self.record.get("pid", 0))
        return pid if pid and is_alive(pid) else 0

    def engines(self) -> list[int]:
        """Every living process that was started from this workspace's store, recorded or not."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and is_alive(int(entry.name)):
                with contextlib.suppress(OSError):
                    if f"{self.store}/images/".encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def read(self, path: str = RECIPE) -> str:
        """A file of the workspace."""
        return (self.root / path).read_text()

    def edit(self, old: str, new: str, path: str = RECIPE) -> None:
        """Replace the first `old` in a file of the workspace."""
        text = self.read(path)
        assert old in text
        (self.root / path).write_text(text.replace(old, new, 1))

    def restore(self) -> None:
        """The files as they were when the workspace was made."""
        for path in (self.root / ".pristine").rglob("*"):
            if path.is_file():
                shutil.copyfile(path, self.root / path.relative_to(self.root / ".pristine"))

    def keep(self) -> None:
        """Make the files as they are now those that `restore` brings back."""
        for name in _CONTENT:
            _copy(self.root / name, self.root / ".pristine" / name)

    def made(self) -> list[str]:
        """The tasks that were made, over all runs, in order."""
        return [entry["task"] for entry in self.runs() if entry["event"] == "made"]

    def status(self) -> dict[str, Any]:
        """`doit status --json` of the demo."""
        done = self("status", "--json")
        (row,) = json.loads(done.out)["lanes"]
        return dict(row)

    def copy(self, root: Path, *, only_one_gate: bool = True) -> Demo:
        """Another workspace with the same store, no lane and its own port; one gate halves the time to serve it."""
        subprocess.run(["cp", "-a", self.root, root], check=True)
        shutil.rmtree(root / ".sparkbuild/node/lanes", ignore_errors=True)
        other = Demo(root, self.env)
        other.restore()
        other.edit(f"port = {_port(other.read())}", f"port = {free_port()}")
        if only_one_gate:
            head, _, rest = other.read().partition('[[gates]]\nkind = "smoke"\nid = "copy"')
            (root / RECIPE).write_text(head + rest[rest.index("# About four minutes") :])
        other.keep()
        return other

    def clean_up(self) -> None:
        """End what this workspace started, and remove it."""
        self("stop:demo", timeout=60)
        for pid in self.engines():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.engines())
        shutil.rmtree(self.root, ignore_errors=True)


class Served(msgspec.Struct):
    """The demo served for the first time: what was planned, what the run said, what is planned since."""

    demo: Demo
    before: dict[str, Any]
    done: Done
    after: dict[str, Any]


def new_demo(root: Path, env: Mapping[str, str] | None = None) -> Demo:
    """The demo's files in a new workspace with a free port, nothing made."""
    bare(root)
    for name in _CONTENT:
        _copy(ROOT / name, root / name)
    demo = Demo(root, env)
    demo.edit(f"port = {_port(demo.read())}", f"port = {free_port()}")
    demo.keep()
    return demo


def _port(recipe: str) -> int:
    return int(recipe.partition("\nport = ")[2].split()[0])


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "reports")
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)
