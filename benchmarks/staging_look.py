"""Quick verify as every serve does it: a process of its own, from its start to its answer, and no byte of the source.

The big files are holes with a ledger that is true of them: nobody has 564 GB to spare. What heads, tails and 16 samples
cost on a disk is shown by files that are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from staging_tools import KEY, MIB, ROOT, Row, agent, cached, files_request, fill, forget, hole, listed

sys.path.insert(0, str(ROOT))

from sparkbuild.agent.ledger import digest, ledger, stamps
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.wire.layout import OURS

_LIMIT = 0.3  # seconds
_ROUNDS = 7
_GIB = 1 << 30
_INSIDE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from sparkbuild.agent.stage.verify import observe
queries, best = json.loads(sys.stdin.read()), 1e9
for _ in range(5):
    start = time.perf_counter()
    for query in queries:
        fact = observe(query)
        assert fact["present"] and not fact["problems"], fact
    best = min(best, time.perf_counter() - start)
print(best)
"""


def looks(work: Path, *, smallest: bool = False) -> list[Row]:
    """The rows; `smallest`: of real files of 1 MiB."""
    shards = _holes(work / "shards", [f"model-{index:05}-of-00141.safetensors" for index in range(141)], 4_000_000_000)
    pair = _holes(work / "pair", ["engram-l1-r0of2.bin", "engram-l14-r0of2.bin"], 25 * _GIB)
    rows = [_timed(work, "141 files of 4 GB", shards), _timed(work, "2 files of 25 GiB (packed layers)", pair)]
    for count, mib in ((1, 1), (2, 1)) if smallest else ((1, 512), (141, 9)):
        sources = [work / f"real-{count}-{mib}-{index}.bin" for index in range(count)]
        for source in sources:
            fill(source, mib * MIB)
        dst = work / f"real-{count}-{mib}"
        agent("stage", files_request(dst, listed(*sources)))
        for source in sources:
            source.unlink()
        rows.append(_timed(work, f"{count} real files of {mib} MiB, cold", dst))
        left = sum(cached(path) for path in dst.iterdir() if path.is_file())
        rows.append(Row("left of these in the page cache", f"{left / MIB:.1f} MiB", "", "", "0 MiB", left == 0))
    return rows


def small_folders(work: Path, count: int) -> str:
    """One quick look at many small folders; a line about it."""
    source = work / "a.json"
    source.write_bytes(os.urandom(5000))
    requests = [files_request(work / "many" / str(index), listed(source)) for index in range(count)]
    code = (
        f"import sys, json; sys.path.insert(0, {str(ROOT)!r})\n"
        "from sparkbuild.agent.stage.stage import run\nfrom sparkbuild.agent.wire.protocol import Reporter\n"
        "Reporter.emit = lambda *a, **k: None\n"
        "for request in json.loads(sys.stdin.read()): run(request, Reporter())"
    )
    subprocess.run([sys.executable, "-I", "-c", code], input=json.dumps(requests).encode(), check=True)
    queries = json.dumps([{"dst": request["dst"], "key": KEY} for request in requests])
    argv = [sys.executable, "-I", "-c", _INSIDE, str(ROOT)]
    took = float(subprocess.run(argv, input=queries.encode(), capture_output=True, check=True).stdout)
    return f"quick verify of {count} small folders in one process: {took / count * 1e6:.0f} us each"


def _holes(dst: Path, names: list[str], size: int) -> Path:
    """A folder as staging leaves it, of files that are holes."""
    (dst / OURS).mkdir(parents=True)
    algorithm = digest.best()
    function = digest.function(algorithm)
    if function is None:
        raise RuntimeError(f"no {algorithm}")
    zeros = bytearray(digest.CHUNK)
    last = size - (digest.count(size) - 1) * digest.CHUNK
    chunks = function(zeros) * (digest.count(size) - 1) + function(zeros[:last])
    sha256 = hashlib.sha256(f"not looked at: {size}".encode()).hexdigest()
    ends = b"".join(function(zeros[: end - first]) for first, end in Shape(size).ends())
    records, proven = [], {}
    for name in names:
        hole(dst / name, size)
        records.append(ledger.Record(name, size, sha256, chunks, algorithm, {}, (), ends))
        proven[name] = stamps.of(os.lstat(dst / name))
    made = ledger.write(str(dst), ledger.Ledger(KEY, {}, algorithm, tuple(records)))
    stamps.write(str(dst), made, proven)
    return dst


def _timed(work: Path, what: str, dst: Path) -> Row:
    """The source that the query names is there and is never opened: strace sees every name that is looked up."""
    source = work / "nas"
    source.mkdir(exist_ok=True)
    names = [path for path in sorted(dst.iterdir()) if path.is_file()]
    for path in names:
        (source / path.name).touch()
    query: dict[str, Any] = files_request(dst, listed(*(source / path.name for path in names)))
    query["full"] = False
    trace = work / "trace"
    strace = ("strace", "-f", "-qq", "-e", "trace=%file", "-o", str(trace))
    asked = -1
    if subprocess.run(["which", "strace"], capture_output=True, check=False).returncode == 0:
        _right(agent("verify", query, before=strace).result)
        asked = sum(str(source) in line for line in trace.read_text().splitlines())
    best = float("inf")
    for _ in range(_ROUNDS):
        for path in names:
            forget(path)
        call = agent("verify", query)
        _right(call.result)
        best = min(best, call.wall)
    seen = "not counted: no strace" if asked < 0 else f"{asked} names of it looked up"
    text = f"quick verify, {what}"
    return Row(text, f"{best * 1e3:.0f} ms", f"source: {seen}", "", "< 300 ms, 0", best < _LIMIT and asked <= 0)


def _right(fact: dict[str, Any]) -> None:
    if not fact["present"] or fact["problems"] or fact["checked"]["whole"]:
        raise RuntimeError(f"not a quick look: {fact}")
