"""Fetch a fixed output: the sha256 is known before, so where the bytes came from does not matter afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from sparkbuild.agent.disk.files import fsync_folder, locked, write_json
from sparkbuild.agent.store.artifacts import keep_if_right, path_of, stamp_of
from sparkbuild.agent.store.pipprogress import PipProgress
from sparkbuild.agent.wire.protocol import AgentError, Reporter

OFFLINE = "if this node has no internet: offline = true in its table of config.toml; else look at its proxy and index"
_UNREACHED = (
    "NewConnectionError",
    "NameResolutionError",
    "name resolution",
    "Name or service not known",
    "No address associated with hostname",
    "Network is unreachable",
    "No route to host",
    "Connection refused",
    "timed out",
)


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "root", "sha256", "filename", "wheel": "name==version" | "", "url", "pinned"?, "others"?:
    [[url, pinned]]}; {"bytes"}.

    `root` is what relative `file:` urls start from, `pinned` the file that says all this, for messages; `others` are
    tried in their order when the url does not give it. Errors: kind "integrity" when the bytes are other bytes, "gone"
    when the URL has none, "node" when they cannot be had. An interrupted url download resumes; nothing is under the
    final name before its hash fits.
    """
    title = request["wheel"] or request["url"]
    pinned = request.get("pinned", "the lock")
    if not request["sha256"].strip("0"):
        raise AgentError(
            f"the sha256 of {title} is a placeholder",
            kind="integrity",
            where=pinned,
            found="64 zeros",
            wanted="the sha256 of the file",
            next=f"write it into {pinned}: sha256sum, of a copy that you trust, tells it",
        )
    path = path_of(request["store"], request["sha256"], request["filename"])
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, ".lock"), f"artifact {title}"):
        part = f"{path}.part"
        if request["wheel"]:
            _wheel(request, folder, part, reporter)
            keep_if_right(part, request["sha256"], title, pinned)
        else:
            from sparkbuild.agent.store import origins  # noqa: PLC0415 - most runs fetch nothing

            origins.fetch(request, part, reporter)
        with open(part, "rb") as file:
            os.fdatasync(file.fileno())
        os.chmod(part, 0o444)
        os.rename(part, path)
        fsync_folder(folder)
        with suppress(OSError):  # only a cache: the next look writes it
            write_json(f"{path}.stamp", {"stamp": stamp_of(os.stat(path))})
        return {"bytes": os.path.getsize(path)}


def _wheel(request: dict[str, Any], folder: str, part: str, reporter: Reporter) -> None:
    """Pip downloads it: index, proxy and certificate settings are pip's own, and it checks the hash as well."""
    work = os.path.join(folder, "download")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    wanted = os.path.join(work, "requirement.txt")
    with open(wanted, "w", encoding="utf-8") as file:
        file.write(f"{request['wheel']} --hash=sha256:{request['sha256']}\n")
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    argv += ["--progress-bar", "off", "--disable-pip-version-check", "--no-input", "-d", work, "-r", wanted]
    try:
        lines = pip(
            argv, work, reporter, f"download {request['wheel']}", {"TMPDIR": work}, remote=bool(request.get("remote"))
        )
        found = os.path.join(work, os.path.basename(request["filename"]))
        if not os.path.isfile(found):
            names = ", ".join(sorted(name for name in os.listdir(work) if name.endswith(".whl")))
            raise AgentError(
                f"{request['wheel']} is not the file that the lock names",
                kind="integrity",
                found=names or "no wheel",
                wanted=request["filename"],
            )
        reporter.log("\n".join(lines[-3:]))
        os.replace(found, part)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_unreached(text: str) -> bool:
    """Whether it says that a server or its name was not reached."""
    return any(sign in text for sign in _UNREACHED)


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
            raise AgentError(
                f"{what}: a file's hash is not the locked one",
                kind="integrity",
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
