"""The memory that a lane holds on this node: what is free again once it is stopped, and no more than was measured."""

from __future__ import annotations

import os
from contextlib import suppress

from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.lane import records
from sparkbuild.agent.machine.logins import output_of
from sparkbuild.agent.machine.system import number, text

PATIENCE = 5.0  # seconds for nvidia-smi
_MIB = 1 << 20


def held(store: str, recipe: str, docker: str) -> int:
    """Bytes of its processes or its container, and of a GPU's memory; 0 when it does not run or cannot be measured."""
    record = records.record(store, recipe)
    if record is None:
        return 0
    if records.in_docker(record):
        group = _group(_pid_of(record["container"], docker))
        pids = {int(pid) for pid in text(f"{group}/cgroup.procs").split()} if group else set()
        return (_of_group(group) + _on_gpu(pids)) if group else 0
    pids = records.members(record)
    return sum(map(_of_process, pids)) + _on_gpu(pids)


def _pid_of(container: str, docker: str) -> int:
    with suppress(DockerdError):
        inspected = Dockerd(docker).container(container)
        return inspected["State"].get("Pid", 0) if inspected else 0
    return 0


def _group(pid: int) -> str:
    """The folder of a process's control group that counts its memory, "" when there is none."""
    for line in text(f"/proc/{pid}/cgroup").splitlines() if pid else ():
        controllers, _, path = line.partition(":")[2].partition(":")
        root = {"": "/sys/fs/cgroup", "memory": "/sys/fs/cgroup/memory"}.get(controllers)
        if root and path.strip("/") and os.path.isdir(f"{root}{path}"):
            return f"{root}{path}"
    return ""


def _of_group(group: str) -> int:
    used = text(f"{group}/memory.current") or text(f"{group}/memory.usage_in_bytes")
    stat = dict(line.split(" ", 1) for line in text(f"{group}/memory.stat").splitlines() if " " in line)
    # the pages of files are available already
    cached = number(stat.get("inactive_file", "")) + number(stat.get("active_file", ""))
    return max(0, int(number(used.strip()) - cached))


def _of_process(pid: int) -> int:
    """Its own pages and its share of those that it has with others, less those of files."""
    fields = dict(line.split(":", 1) for line in text(f"/proc/{pid}/smaps_rollup").splitlines()[1:] if ":" in line)
    names = ("Pss_Anon", "Pss_Shmem")
    return sum(int(number(fields.get(name, "").strip().partition(" ")[0])) * 1024 for name in names)


def _on_gpu(pids: set[int]) -> int:
    if not pids or not os.path.isdir("/proc/driver/nvidia"):
        return 0
    argv = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    return of_gpu_rows(output_of(argv, PATIENCE), pids)


def of_gpu_rows(out: str, pids: set[int]) -> int:
    """Bytes of the processes among the rows `pid, MiB` of nvidia-smi; one that is not told counts as nothing."""
    wanted = set(map(str, pids))
    rows = [[cell.strip() for cell in line.split(",")] for line in out.splitlines()]
    return sum(int(number(row[1])) * _MIB for row in rows if len(row) == 2 and row[0] in wanted)
