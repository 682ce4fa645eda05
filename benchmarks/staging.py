"""How fast staging is beside `cp` of the same file in the same run: benchmarks/staging.py [MiB] [rounds] [folder].

The agent runs as it does on a node (a process of its own, its request on stdin); `cp` is followed by `sync -d` of the
copy, since staging too ends with the data on the disk. Rounds are interleaved and the best of each counts: the rest of
the machine only ever makes things slower. The page cache of the source is dropped before each copy. Prints a table of
ratios; nothing of it is a test.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_CODE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sparkbuild.agent.main import main; sys.exit(main())"
_INSIDE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from sparkbuild.agent.verify import observe
queries = json.loads(sys.stdin.read())
best = 1e9
for _ in range(5):
    start = time.perf_counter()
    for query in queries:
        fact = observe(query)
        assert fact["present"] and not fact["problems"], fact
    best = min(best, time.perf_counter() - start)
print(best)
"""


def agent(verb: str, request: dict[str, object]) -> tuple[float, float, int]:
    """(wall s, CPU s, peak RSS in bytes) of one call of the agent."""
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _CODE, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipe")
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()  # left open: the agent ends when it closes
        lines = process.stdout.read().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    result = json.loads(lines[-1])
    if process.returncode:
        raise RuntimeError(f"the agent failed: {result}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def cp(source: Path, target: Path) -> tuple[float, float]:
    """(wall s, CPU s) of `cp` and `sync -d`."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    subprocess.run(["sync", "-d", target], check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def forget(path: Path) -> None:
    """Drop the file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def request_for(folder: Path, name: str, source: Path) -> dict[str, object]:
    """Stage one plain file."""
    files = [{"name": name, "source": {"kind": "file", "path": str(source), "id": "bench"}}]
    return {"dst": str(folder), "key": "0" * 64, "parts": {}, "what": {"kind": "list", "files": files}}


def main() -> None:
    """Measure and print."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as name:
        work = Path(name)
        source = work / "source.bin"
        block = secrets.token_bytes(1 << 20)
        with source.open("wb") as file:
            for index in range(size):
                file.write(block[index % 997 :] + block[: index % 997])
            file.flush()
            os.fsync(file.fileno())
        copies, stages = [], []
        for turn in range(rounds):
            for what in ("cp", "stage") if turn % 2 else ("stage", "cp"):
                forget(source)
                if what == "cp":
                    copies.append(cp(source, work / "copy.bin"))
                    (work / "copy.bin").unlink()
                else:
                    stages.append(agent("stage", request_for(work / "staged", "data.bin", source)))
                    if turn < rounds - 1:
                        subprocess.run(["rm", "-r", work / "staged"], check=True)
                os.sync()
        quick = look([{"dst": str(work / "staged"), "key": "0" * 64}])
        full = min(agent("verify", {"dst": str(work / "staged"), "key": "0" * 64})[0] for _ in range(3))
        many = [request_for(work / "many" / str(index), "a.json", Path(__file__)) for index in range(1000)]
        small = thousand(many)
        gigabytes = size / 1000 * 1.048576
        wall, ref = min(run[0] for run in stages), min(run[0] for run in copies)
        print(f"| staging a file of {size} MiB, best of {rounds} | staging | cp + sync -d | ratio |")
        print("|---|---:|---:|---:|")
        print(f"| speed, MB/s | {gigabytes / wall * 1e3:.0f} | {gigabytes / ref * 1e3:.0f} | {ref / wall:.2f} |")
        pairs = sorted(other[0] / run[0] for run, other in zip(stages, copies, strict=True))
        print(f"| speed, median of the rounds' own ratios | | | {pairs[len(pairs) // 2]:.2f} |")
        cpu, cpu_ref = min(run[1] for run in stages) / gigabytes, min(run[1] for run in copies) / gigabytes
        print(f"| CPU, s/GB | {cpu:.2f} | {cpu_ref:.2f} | {cpu / cpu_ref:.1f} |")
        print(f"| peak memory of the agent, MiB | {max(run[2] for run in stages) / 2**20:.0f} | | |")
        print(f"| quick verify of it, ms | {quick * 1e3:.1f} | | {quick / wall:.3f} |")
        print(f"| full verify of it (whole process), ms | {full * 1e3:.0f} | | {full / wall:.2f} |")
        print(f"| quick verify of 1,000 small folders, us each | {small * 1e3:.0f} | | |")


def look(queries: list[dict[str, object]]) -> float:
    """Seconds for one quick look at all the folders, inside an agent's process, best of 5."""
    argv = [sys.executable, "-I", "-c", _INSIDE, str(ROOT)]
    return float(subprocess.run(argv, input=json.dumps(queries).encode(), capture_output=True, check=True).stdout)


def thousand(requests: list[dict[str, object]]) -> float:
    """Stage many small folders in one process, then look at them all; seconds for the look."""
    code = (
        f"import sys, json; sys.path.insert(0, {str(ROOT)!r})\n"
        "from sparkbuild.agent.stage import run\nfrom sparkbuild.agent.protocol import Reporter\n"
        "Reporter.emit = lambda *a, **k: None\n"
        "for request in json.loads(sys.stdin.read()): run(request, Reporter())"
    )
    subprocess.run([sys.executable, "-I", "-c", code], input=json.dumps(requests).encode(), check=True)
    return look([{"dst": request["dst"], "key": "0" * 64} for request in requests])


if __name__ == "__main__":
    main()
