"""Run pip: its lines to the log, its progress, its errors with what to do about them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from sparkbuild.agent.store.pipprogress import PipProgress
from sparkbuild.agent.store.unreached import OFFLINE, is_unreached
from sparkbuild.agent.wire.protocol import AgentError, Reporter, integrity_error


def _advice(text: str, *, remote: bool) -> str:
    """What to do after pip said `text`."""
    none = "No matching distribution found" in text
    if none and not is_unreached(text):  # the index was reached, and has it for others only
        machine = f"Python {'.'.join(map(str, sys.version_info[:2]))} on {os.uname().machine}"
        other = "`python` of this node in config.toml" if remote else "SPARKBUILD_PYTHON=python3.x ./doitw ..."
        return (
            f"does the package index have it for {machine}? Where it has it for another Python, {other} names that one;"
            " else lock another version. The task's log has all that pip said"
        )
    if remote and is_unreached(text):
        return OFFLINE
    if is_unreached(text):
        return "is a package index reached from here? HTTPS_PROXY, PIP_INDEX_URL and PIP_FIND_LINKS are pip's settings"
    return "the task's log has all that pip said"


def pip(
    argv: list[str], folder: str, reporter: Reporter, what: str, env: dict[str, str], *, remote: bool = False
) -> list[str]:
    """Run pip, its lines to the log, the wheels that come into `folder` as progress; its last error as an AgentError.
    `remote`: on a machine that may be told to be offline. The last of `argv` is the file of requirements.
    """
    state = PipProgress(_requirements(argv[-1]))
    process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | env,
        text=True,
    )
    done = threading.Event()

    def grow() -> None:
        while not done.wait(0.5):
            if state.installs:
                reporter.progress(f"{what}: unpack", _size(folder), None)
            else:
                reporter.progress(what, *state.amount(folder))

    threading.Thread(target=grow, daemon=True).start()
    lines = []
    try:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            state.line(lines[-1])
            reporter.log(lines[-1])
        code = process.wait()
    finally:
        done.set()
        if process.poll() is None:
            process.kill()
    if code:
        said = [line for line in lines if line.startswith("ERROR")] or lines[-5:]
        text = "\n".join(lines)
        if "HASH" in text.upper() and "MATCH" in text.upper():
            raise integrity_error(
                f"{what}: a file's hash is not the locked one",
                found="\n".join(_mismatch(lines)),
                next="find out who changed it before you change the lock; nothing was kept",
            )
        if "No space left" in text:
            raise AgentError(
                f"{what}: no space left", kind="space", where=folder, found=said[-1], next="make room, then run again"
            )
        cause = next((line for line in lines if is_unreached(line) and line not in said), "")
        found = "\n".join([*said[-6:], *([cause[:300]] if cause else [])])
        raise AgentError(f"{what} failed", kind="node", found=found, next=_advice(text, remote=remote))
    return lines


def _requirements(path: str) -> int:
    """How many packages a file of requirements names."""
    with open(path, encoding="utf-8") as file:
        return sum("==" in line.partition("#")[0] for line in file)


def _mismatch(lines: list[str]) -> list[str]:
    """Of what pip says about hashes: which file, one that was wanted, and what came."""
    start = next((index for index, line in enumerate(lines) if "DO NOT MATCH" in line), max(0, len(lines) - 12))
    kept = [
        line.strip() for line in lines[start + 1 :] if line.strip() and not line.strip().startswith("Expected     or")
    ]
    return kept or lines[-12:]


def _size(folder: str) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue
    return total
