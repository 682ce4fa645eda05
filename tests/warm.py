"""Python programs that begin as a copy of a process that has their imports: half of what most tests cost was imports.

`start` is subprocess.Popen for a Python of ours: a process of its own, with its own pid, files, folder, environment and
exit code, to be killed and waited for like any other. Only it was forked, by a server that stands beside the tests and
has nothing but modules in memory. What a copy cannot be is started in the ordinary way: another Python, other variables
that Python or sparkbuild read as they start, and all of them with SPARKBUILD_TEST_COLD=1 (as .ci/long has it).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COLD = "SPARKBUILD_TEST_COLD"
_AT_START = ("PYTHON", "LC_", "LANG", "SPARKBUILD_CALLED_AS", "TZ", "LD_")  # read once, before the first line is run
_NOT_THESE = ("PYTHONDONTWRITEBYTECODE",)  # set for the copy by hand
_STATUS = struct.Struct("=i")

# What a server has in memory: modules by name; a name that ends with .* stands for all below it, too.
OPERATOR = ("doit.doit_cmd", "sparkbuild.plugin.*", "jinja2", "httpx", "paramiko", "docker")
AGENT = ("sparkbuild.agent.*", "xxhash")
LIBRARY = (
    *("base64", "bisect", "calendar", "collections", "contextlib", "ctypes", "datetime", "errno", "fcntl", "fnmatch"),
    *("functools", "getpass", "glob", "hashlib", "hmac", "http.client", "http.server", "importlib.metadata", "inspect"),
    *("itertools", "json", "mmap", "os", "pathlib", "platform", "queue", "random", "re", "select", "selectors"),
    *("shlex", "shutil", "signal", "socket", "ssl", "stat", "string", "struct", "subprocess", "tarfile", "tempfile"),
    *("threading", "time", "typing", "urllib.parse", "urllib.request", "uuid", "zipfile", "zlib"),
)


def start(words: Sequence[str], modules: Sequence[str] = OPERATOR, **options: Any) -> subprocess.Popen[Any]:
    """Popen([sys.executable, *words], **options); `words`: -m MODULE or -c CODE, and arguments; -I may precede them."""
    env = options.get("env")
    if os.environ.get(COLD) or not _same_start(os.environ if env is None else env) or "preexec_fn" in options:
        return subprocess.Popen([sys.executable, *words], **options)
    return _Copy(_server(tuple(modules), "-I" in words), words, options)


def _same_start(env: Mapping[str, str]) -> bool:
    def of(variables: Mapping[str, str]) -> dict[str, str]:
        named = {name: text for name, text in variables.items() if name.startswith(_AT_START)}
        return {name: text for name, text in named.items() if name not in _NOT_THESE}

    return of(env) == of(_before)


# What servers start with; the variable is the caller's of `./doitw test`, and of no doit that a test starts.
_before = {name: text for name, text in os.environ.items() if name != "SPARKBUILD_CALLED_AS"}
_servers: dict[tuple[tuple[str, ...], bool], socket.socket] = {}


def _server(modules: tuple[str, ...], isolated: bool) -> socket.socket:
    """The socket of the server with these modules; each process of the tests has its own."""
    if (modules, isolated) not in _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.warm import main; main()"
        argv = [sys.executable, *(["-I"] if isolated else []), "-c", code, str(theirs.fileno()), *modules]
        devnull = subprocess.DEVNULL
        process = subprocess.Popen(
            argv,
            cwd="/",
            env=_before,
            stdin=devnull,
            stdout=devnull,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        _servers[modules, isolated] = ours
        atexit.register(_end, ours, process)
    return _servers[modules, isolated]


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()  # the server ends with it
    process.wait()


class _Copy(subprocess.Popen[Any]):
    """A process that a server has forked; the server says when it has ended, and how."""

    def __init__(self, server: socket.socket, words: Sequence[str], options: Mapping[str, Any]) -> None:
        self._server = server
        self._told = -1  # where the server writes: its pid, and at its end its status
        super().__init__([sys.executable, *words], **options)

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        cwd, env, pipes, session = rest[4], rest[5], rest[9:15], rest[20]
        stdin, _, _, stdout, _, stderr = pipes
        ours, theirs = os.pipe()
        self._told = ours
        order = {
            "words": args[1:],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": session,
            "umask": int(Path("/proc/self/status").read_text().partition("\nUmask:")[2].split()[0], 8),
        }
        fds = [max(stdin, 0), stdout if stdout >= 0 else 1, stderr if stderr >= 0 else 2, theirs]
        try:
            socket.send_fds(self._server, [json.dumps(order).encode()], fds)
        finally:
            for fd in {theirs, stdin, stdout, stderr} - {-1, getattr(self, "_devnull", None)}:
                os.close(fd)
            if getattr(self, "_devnull", None) is not None:
                os.close(self._devnull)  # type: ignore[attr-defined]
        self.pid = _STATUS.unpack(os.read(ours, _STATUS.size))[0]
        self._child_created = True

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None:
            self._hear(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        began = time.monotonic()
        while self.returncode is None:
            left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
            self._hear(left)
            if left == 0 and self.poll() is None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _hear(self, seconds: float | None) -> None:
        """Take the status, if it comes within that time."""
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is not None or not selected(self._told, seconds):
                return
            self.returncode = os.waitstatus_to_exitcode(_STATUS.unpack(os.read(self._told, _STATUS.size))[0])
            os.close(self._told)


def selected(fd: int, seconds: float | None) -> bool:
    """Whether there is something to read, within that time."""
    with selectors.PollSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(seconds))


# -- the server ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Load modules, then fork whenever it is told to; returns in a copy, as what it was asked to be."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in (*LIBRARY, *sys.argv[2:]):
        _load(name)
    gc.collect()
    gc.freeze()
    order = _serve(orders)
    if order is None:
        os._exit(0)
    try:
        _become(order)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _leave(end.code or 0)
        raise
    _leave(0)


def _load(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _serve(orders: socket.socket) -> dict[str, Any] | None:
    """None when nobody can ask any more; in a copy, what it is to be."""
    selector = selectors.PollSelector()
    selector.register(orders, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                pid, told = key.data
                _, status = os.waitpid(pid, 0)
                selector.unregister(key.fd)
                os.close(key.fd)
                _tell(told, status)
                os.close(told)
                continue
            text, fds, _, _ = socket.recv_fds(orders, 1 << 20, 4)
            if not text:
                return None
            pid = os.fork()
            if not pid:
                for number, fd in enumerate(fds[:3]):
                    os.dup2(fd, 1000 + number)
                for number in range(3):
                    os.dup2(1000 + number, number)
                orders.detach()
                os.closerange(3, 1 << 20)
                order: dict[str, Any] = json.loads(text)
                return order
            _tell(fds[3], pid)
            for fd in fds[:3]:
                os.close(fd)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[3]))


def _tell(fd: int, number: int) -> None:
    try:
        os.write(fd, _STATUS.pack(number))
    except BrokenPipeError:  # nobody asks
        return


def _become(order: Mapping[str, Any]) -> None:
    """This process, as Python would have begun it."""
    if order["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(order["umask"])
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        _reopen(number, name, mode)
    words = [word for word in order["words"] if word != "-I"]
    isolated = len(words) < len(order["words"])
    kind, what, *arguments = words
    sys.path.remove(str(ROOT))
    if kind == "-m":
        sys.argv = ["-m", *arguments]
        sys.path[:0] = [] if isolated else [os.getcwd()]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *arguments]
        sys.path[:0] = [] if isolated else [""]
        exec(what, vars(sys.modules["__main__"]))


def _leave(code: int) -> None:
    """The end of a Python, without taking apart what it shares with the server: that copies all of its memory first.

    Returns when what was printed cannot be written; Python has words of its own for that.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code & 0xFF)


def _reopen(number: int, name: str, mode: str) -> None:
    """A standard stream as a Python that starts makes it."""
    was = getattr(sys, name)
    buffer = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - open to the end of the process
    lines = name == "stderr" or (name == "stdout" and os.isatty(number))
    stream = io.TextIOWrapper(buffer, encoding=was.encoding, errors=was.errors, line_buffering=lines)
    stream.mode = mode  # type: ignore[misc] # as that of a Python that starts
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
