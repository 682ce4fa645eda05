"""What the benchmarks of staging share: the agent as a node runs it, `cp`, the page cache, rows of a table."""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sparkbuild.nodes.local import process as agent_process

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
KEY = "0" * 64
# No switch of the product, whose ledger always has a sha256: what the loop itself costs, with the chunk digests alone.
WITHOUT_SHA256 = """
from sparkbuild.agent.ledger import content
class _None:
    update = staticmethod(lambda data: None)
    hexdigest = staticmethod(lambda: "0" * 64)
_init = content.Hashes.__init__
def _without(self, *arguments, **named):
    _init(self, *arguments, **named)
    self.sha256 = _None
content.Hashes.__init__ = _without
"""


class Call(NamedTuple):
    """One call of the agent: wall and CPU seconds, peak RSS in bytes, and its result."""

    wall: float
    cpu: float
    rss: int
    result: dict[str, Any]


class Row(NamedTuple):
    """A row of the table. `figure` has its unit; `beside` is the reference and its own figure; `target` in words."""

    what: str
    figure: str
    beside: str
    ratio: str
    target: str
    passed: bool


def agent(verb: str, request: dict[str, Any], shim: str = "", before: tuple[str, ...] = ()) -> Call:
    """One call, started as a run starts it. `shim`: statements before its main; `before`: a program to run it under,
    such as strace.
    """
    argv = agent_process.command(verb)
    python, main, rest = argv[:4], argv[4], argv[5:]
    main = main.replace("from sparkbuild", f"{shim}\nfrom sparkbuild", 1)
    start = time.perf_counter()
    argv = [*before, *python, main, *rest]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipe")
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()  # left open: the agent ends when it closes
        lines = process.stdout.read().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    result = json.loads(lines[-1]) if lines else {}
    if process.returncode:
        raise RuntimeError(f"the agent failed: {result}")
    return Call(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, result)


def cp(source: Path, target: Path) -> Call:
    """`cp` and `sync -d` of the copy, since staging too ends with the data on the disk."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sync", "-d", target], check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Call(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 0, {})


def files_request(dst: Path, what: dict[str, Any], **more: object) -> dict[str, Any]:
    """The request that stages `what` into a folder."""
    return {"dst": str(dst), "key": KEY, "parts": {}, "what": what, **more}


def listed(*sources: Path) -> dict[str, Any]:
    """What to stage: plain files."""
    files = [
        {"name": source.name, "source": {"kind": "file", "path": str(source), "id": source.name}} for source in sources
    ]
    return {"kind": "list", "files": files}


def fill(path: Path, size: int) -> None:
    """Random bytes, no two MiB alike, on the disk."""
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for index in range(-(-size // MIB)):
            file.write((block[index % 997 :] + block[: index % 997])[: size - index * MIB])
        file.flush()
        os.fsync(file.fileno())
    forget(path)


def hole(path: Path, size: int) -> None:
    """A file that is nothing but a hole."""
    with path.open("wb") as file:
        file.truncate(size)


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path: Path) -> int:
    """Bytes of a file in the page cache, by mincore."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, page = path.stat().st_size, os.sysconf("SC_PAGESIZE")
    with path.open("rb") as file:
        long = ctypes.c_size_t
        address = libc.mmap(None, long(size), 1, 1, file.fileno(), ctypes.c_int64(0))  # PROT_READ, MAP_SHARED
        vector = (ctypes.c_ubyte * -(-size // page))()
        failed = libc.mincore(ctypes.c_void_p(address), long(size), vector)
        libc.munmap(ctypes.c_void_p(address), long(size))
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return page * sum(byte & 1 for byte in vector)


def interleaved(rounds: int, works: Mapping[str, Callable[[], Call]]) -> dict[str, list[Call]]:
    """Every one once a round, in an order that differs from round to round: the machine is never ours alone."""
    found: dict[str, list[Call]] = {name: [] for name in works}
    order = list(works)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            found[name].append(works[name]())
            os.sync()
    return found


def speed(what: str, size: int, calls: list[Call], beside: list[Call], target: float) -> Row:
    """A row for the speed beside `cp` in the same rounds. The best of each counts; the medians are told too."""
    best, ref = min(call.wall for call in calls), min(call.wall for call in beside)
    middle = statistics.median(call.wall for call in beside) / statistics.median(call.wall for call in calls)
    cpu, ref_cpu = (min(call.cpu for call in runs) / size * 1e9 for runs in (calls, beside))
    figure = f"{size / best / 1e6:.0f} MB/s, {cpu:.2f} CPU-s/GB"
    shown = f"cp + sync -d: {size / ref / 1e6:.0f} MB/s, {ref_cpu:.2f} CPU-s/GB"
    ratio = ref / best
    return Row(what, figure, shown, f"{ratio:.2f} (medians {middle:.2f})", f">= {target:.2f}", ratio >= target)
