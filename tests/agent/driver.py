"""The agent as a node runs it: a process of its own, isolated, its request on a stdin that stays open."""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.stage import stage, verify
from sparkbuild.agent.wire.protocol import Reporter
from tests import warm

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
CHUNK = 4 * MIB

# {shim} runs before the agent's main: where a test slows it down or kills it
BOOT = "import sys; sys.path.insert(0, {root!r})\n{shim}\nfrom sparkbuild.agent.main import main; sys.exit(main())"


def start(
    verb: str, request: dict[str, Any], *, python: str = sys.executable, shim: str = ""
) -> subprocess.Popen[bytes]:
    """Start the agent and hand it its request; the caller closes stdin."""
    code = BOOT.format(root=str(ROOT), shim=shim)
    pipe = subprocess.PIPE
    if python == sys.executable:  # a shim finds none of our modules imported
        modules = () if shim else warm.AGENT
        process = warm.start(["-I", "-c", code, verb], modules, stdin=pipe, stdout=pipe, stderr=pipe)
    else:
        process = subprocess.Popen([python, "-I", "-c", code, verb], stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return process


@dataclass
class Answer:
    """What the agent said. `last` is its result or its error."""

    code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def logs(self) -> str:
        return "\n".join(event["text"] for event in self.events if event["event"] == "log")


def finish(process: subprocess.Popen[bytes], timeout: float = 60) -> Answer:
    """Wait for it with stdin open."""
    assert process.stdout is not None
    assert process.stderr is not None
    lines = process.stdout.read().splitlines()
    stderr = process.stderr.read().decode()
    code = process.wait(timeout)
    assert process.stdin is not None
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    return Answer(code, [json.loads(line) for line in lines], stderr)


def call(verb: str, request: dict[str, Any], *, python: str = sys.executable, shim: str = "") -> Answer:
    """One call; nothing may be on stderr, whatever went wrong: a traceback is a bug."""
    answer = finish(start(verb, request, python=python, shim=shim))
    if answer.code >= 0:
        assert answer.stderr == "", answer.stderr
    return answer


def key(char: str = "a") -> str:
    return char * 64


def look(dst: Path, wanted: str = key(), *, full: bool = False, **more: Any) -> dict[str, Any]:
    """The fact about one folder, by a `facts` call."""
    query = {"scheme": "staged", "store": "/", "dst": str(dst), "key": wanted, "full": full, **more}
    answer = call("facts", {"store": "/", "queries": [query]})
    assert answer.code == 0, answer.events
    fact: dict[str, Any] = answer.last["facts"][0]
    return fact


def problems(fact: dict[str, Any]) -> list[str]:
    return [problem["text"] for problem in fact["problems"]]


def request_for(dst: Path, files: dict[str, Path], char: str = "a", **more: Any) -> dict[str, Any]:
    """Stage plain files, named by content as a lock would."""
    wanted = [{"name": name, "source": {"kind": "file", "path": str(path), "id": name}} for name, path in files.items()]
    return {
        "dst": str(dst),
        "key": key(char),
        "parts": {"kind": "files"},
        "what": {"kind": "list", "files": wanted},
        **more,
    }


def entry(name: str, path: Path, **more: Any) -> dict[str, Any]:
    """One plain file of a list; more: extents, sha1, ..."""
    return {"name": name, "source": {"kind": "file", "path": str(path), "id": f"content of {path.name}"}, **more}


def list_of(dst: Path, files: list[dict[str, Any]], links: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Stage these entries and links."""
    pointers = [{"name": name, "text": text} for name, text in (links or {}).items()]
    what = {"kind": "list", "files": files, "links": pointers}
    return {"dst": str(dst), "key": key(), "parts": {"kind": "files"}, "what": what, **more}


class Silent(Reporter):
    """For calls in this process: one of their own for each would take minutes. Keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, event: str, **fields: Any) -> None:
        if event == "log":
            self.said.append(fields["text"])


def stage_here(request: dict[str, Any]) -> dict[str, Any]:
    return stage.run(request, Silent())


def look_here(dst: Path, **query: Any) -> dict[str, Any]:
    return verify.observe({"dst": str(dst), "key": key(), **query})


def allocated(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path: Path, offset: int) -> None:
    """Change one byte and set the times back, as a bad tool or a bad disk would."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def tree(dst: Path) -> list[str]:
    """Every file of a folder, ours too, without the lock."""
    found = [str(path.relative_to(dst)) for path in dst.rglob("*") if path.is_file()]
    return sorted(name for name in found if name != ".sparkbuild/lock")


COMPLETE = [".sparkbuild/ledger.json", ".sparkbuild/stamps.json"]


def from_wheel(dst: Path, wheel: Path, members: list[str], char: str = "a", **more: Any) -> dict[str, Any]:
    parts = {"kind": "files", "source": sha256(wheel), "members": members}
    what = {"kind": "artifact", "archive": str(wheel), "members": members, "sha256": sha256(wheel)}
    return {"dst": str(dst), "key": key(char), "parts": parts, "what": what, **more}


def cached(path: Path | str) -> int:
    """Pages of a file in memory, by mincore."""
    libc, long, pointer = ctypes.CDLL(None, use_errno=True), ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.restype = pointer
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    address = libc.mmap(None, long(size), mmap.PROT_READ, mmap.MAP_SHARED, fd, long(0))
    vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    assert libc.mincore(pointer(address), long(size), vector) == 0
    libc.munmap(pointer(address), long(size))
    os.close(fd)
    return sum(one & 1 for one in vector)


def drop(path: Path | str) -> None:
    """Have nothing of a file in memory; skips the test where that cannot be."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if cached(path):
        pytest.skip("this file system keeps pages whatever it is told (tmpfs)")
