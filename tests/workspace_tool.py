"""A workspace in a temporary folder, and the real `doit` run in it as a user runs it: as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests import warm

REPOSITORY = Path(__file__).resolve().parents[1]

DODO = """\
from sparkbuild.plugin.tasks import *
from sparkbuild.plugin.tasks import Proc, config
DOIT_CONFIG = config()
"""


class Done:
    """A finished doit."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def text(self) -> str:
        """All it printed."""
        return self.out + self.err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Tool:
    """doit in one workspace."""

    def __init__(self, root: Path, env: Mapping[str, str] | None = None) -> None:
        self.root = root
        inherited = {name: value for name, value in os.environ.items() if name != "SPARKBUILD_CALLED_AS"}
        self.env = {**inherited, "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start doit; its output can be read from the pipes."""
        return warm.start(
            ["-m", "doit", *args],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, timeout: float = 300) -> Done:
        """Run doit to its end."""
        return finish(self.start(*args), timeout)

    def ok(self, *args: str, timeout: float = 300) -> Done:
        """Run doit and insist on exit code 0."""
        done = self(*args, timeout=timeout)
        assert done.code == 0, done
        assert "Traceback" not in done.text, done
        return done

    def fails(self, *args: str, timeout: float = 300) -> Done:
        """Run doit and insist on a non-zero exit code and no traceback."""
        done = self(*args, timeout=timeout)
        assert done.code != 0, done
        assert "Traceback" not in done.text, done
        return done

    def plan(self, *tasks: str) -> dict[str, dict[str, Any]]:
        """`doit plan --json`, by task."""
        done = self.ok("plan", "--json", *tasks)
        return {goal["task"]: goal for goal in json.loads(done.out)["goals"]}

    def states(self, *tasks: str) -> dict[str, str]:
        """The states of the plan, by task."""
        return {task: goal["state"] for task, goal in self.plan(*tasks).items()}

    def runs(self) -> list[dict[str, Any]]:
        """All entries of the run log, in order."""
        logs = sorted((self.root / ".sparkbuild" / "runs").glob("*/run.jsonl"))
        return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def finish(process: subprocess.Popen[str], timeout: float = 300) -> Done:
    """Wait for a started doit."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"doit did not end within {timeout} s\n{out}\n{err}") from None
    return Done(process.returncode, out, err)


def until(what: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s")


def is_alive(pid: int) -> bool:
    """True for a running process (a zombie is none)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def bare(root: Path, tasks: str = "") -> Tool:
    """A workspace with nothing but a dodo.py holding some tasks."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dodo.py").write_text(DODO + tasks)
    (root / "config.toml").write_text('[nodes.local]\nconnection = "local"\n\n[clusters.local]\nnodes = ["local"]\n')
    return Tool(root)
