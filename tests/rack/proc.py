"""Processes: run one and have its result, know one again by pid and start time, enter the namespaces of one."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class RackError(Exception):
    """The rack could not do it; the message says what failed and why."""


@dataclass(frozen=True)
class Result:
    """A finished program."""

    command: str
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.command}: exit code {self.code}\n{self.out}{self.err}".rstrip()


def call(
    argv: Sequence[str],
    *,
    text: str | bytes = "",
    timeout: float = 120,
    check: bool = True,
    shown: str = "",
) -> Result:
    """Run a program with `text` as its input. RackError when it fails (unless `check` is false) or takes too long.

    `shown` is what it is called in messages; default: the command itself.
    """
    command = shown or shlex.join(argv)
    data = text.encode() if isinstance(text, str) else text
    try:
        done = subprocess.run(argv, input=data, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        said = ((error.stdout or b"") + (error.stderr or b"")).decode(errors="replace")
        raise RackError(f"{command}: not finished after {timeout:g} s\n{said}".rstrip()) from None
    out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    result = Result(command, done.returncode, out, err)
    if check and result.code:
        raise RackError(str(result))
    return result


@dataclass(frozen=True)
class Proc:
    """A process of the machine. A pid alone may be another's by now: the start time (in clock ticks) tells."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Proc:
        """The process that has this pid now; RackError when there is none."""
        stat = _stat(pid)
        if stat is None:
            raise RackError(f"no process {pid}")
        return cls(pid, int(stat[19]))

    def alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and int(stat[19]) == self.started and stat[0] not in {"Z", "X"}

    def signal(self, number: int) -> None:
        """Send a signal; a process that is gone needs none."""
        if self.alive():
            os.kill(self.pid, number)


def _stat(pid: int) -> list[str] | None:
    # The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets: state, ppid, ...
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def children(pid: int) -> list[int]:
    """The pids of a process's children, as this machine numbers them (in a pid namespace they have others too)."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [one for one in found if (stat := _stat(one)) is not None and int(stat[1]) == pid]


def only_child(pid: int) -> int | None:
    below = children(pid)
    return below[0] if below else None


def wait_for(what: str, condition: Callable[[], object], timeout: float = 15) -> None:
    """Ask until the answer is true; RackError with `what` when that takes longer than `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise RackError(f"{what}: not within {timeout:g} s")
        time.sleep(0.01)


def entering(pid: int, *kinds: str) -> list[str]:
    """The command that runs another in namespaces of `pid` (net, mount, pid, uts, ipc).

    Not `ip netns exec`: that remounts /sys, and the cgroups below it are gone.
    """
    return ["nsenter", f"--target={pid}", *(f"--{kind}" for kind in kinds), "--"]
