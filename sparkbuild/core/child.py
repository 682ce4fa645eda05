"""Child processes: each in a process group of its own, output in a log file, none left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from sparkbuild.core.errors import ChildError
from sparkbuild.core.interrupt import Cancel, cancel
from sparkbuild.core.tether import Tether

_live: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()
_tether = Tether()

GRACE = 10.0  # seconds between SIGTERM and SIGKILL


def spawn(
    argv: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = subprocess.STDOUT,
    tethered: bool = True,
    final: bool = False,
    lasting: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group and remember it until `reap`. The group does not outlive this process;
    a child that ends with its stdin needs no tether for that. Once the run was told to stop, only what cleans up
    (`final`) is started; anything else raises Interrupted. `lasting`: it goes on then, since what cleans up needs it.
    """
    # A signal in the middle of Popen would leave a child that nobody knows of.
    with cancel.held():
        with _guard:
            process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
                list(argv), cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
            if not lasting:
                _live.add(process)
        if tethered:
            _tether.hold(process.pid)
    if cancel.stopped and not final:
        end(process)
        cancel.check()
    return process


def reap(process: subprocess.Popen[bytes], cancelled: Cancel = cancel) -> int:
    """Wait for a child; end its whole group when the run is told to stop. Returns its exit code."""
    try:
        while True:
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                cancelled.check()
    finally:
        end(process)
        cancelled.check()


def end(process: subprocess.Popen[bytes], grace: float = GRACE) -> None:
    """End the child's group: SIGTERM, then SIGKILL after `grace` seconds; what it left running in its group too."""
    try:
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=grace)
        deadline = time.monotonic() + grace
        if _signal_group(process.pid, signal.SIGTERM):  # grandchildren that stayed behind
            while _signal_group(process.pid, 0) and time.monotonic() < deadline:
                time.sleep(0.05)
            _signal_group(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits for a NAS that hangs cannot be killed
            process.wait(timeout=grace)
            _tether.release(process.pid)
    finally:
        with _guard:
            _live.discard(process)


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stop_all() -> None:
    for process in list(_live):
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)


cancel.on_stop(_stop_all)


def run(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
) -> int:
    """Run a child to its end with its output appended to `log`; returns the exit code.

    `on_line` gets each line of output as well. Raises ChildError with the last lines of output when the code is
    not 0 and `check` is set, and when the program cannot be started at all.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        start = sink.tell()
        try:
            if on_line is None:
                code = reap(spawn(argv, cwd=cwd, env=env, stdout=sink))
            else:
                code = _run_piped(argv, cwd, env, sink, on_line)
        except OSError as error:
            raise ChildError(f"cannot start {argv[0]}", found=error.strerror or str(error), where=str(log)) from error
    if code and check:
        raise ChildError(
            f"{Path(argv[0]).name} ended with code {code}",
            where=str(log),
            found="\n".join(last_lines(log, start=start)),
        )
    return code


def _run_piped(
    argv: Sequence[str],
    cwd: Path | str | None,
    env: Mapping[str, str] | None,
    sink: IO[bytes],
    on_line: Callable[[str], None],
) -> int:
    process = spawn(argv, cwd=cwd, env=env, stdout=subprocess.PIPE)
    stream = process.stdout
    if stream is None:
        raise RuntimeError("no pipe")

    def pump() -> None:
        for line in stream:
            sink.write(line)
            sink.flush()
            on_line(line.decode(errors="replace").rstrip("\n"))

    reader = threading.Thread(target=pump, daemon=True)
    reader.start()
    try:
        return reap(process)
    finally:
        reader.join(timeout=2)  # a grandchild that kept the pipe was ended with the group
        stream.close()


def last_lines(path: Path, count: int = 15, start: int = 0) -> list[str]:
    """The last lines of a log from byte `start` on; reads at most its last 64 KiB."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 65536))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
