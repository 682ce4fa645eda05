"""This machine and who we are on it: its name, system, kernel, clock, memory. What cannot be read is left blank."""

from __future__ import annotations

import grp
import math
import os
import sys
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.machine.procs import boot_id, name_of

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import Memory, System


def system() -> System:
    """See System; `time` is for the caller to set, when all else is looked at."""
    machine = os.uname()
    name, version = release(text("/etc/os-release") or text("/usr/lib/os-release"))
    user, groups = names()
    return {
        "host": machine.nodename,
        "os": name,
        "os_version": version,
        "arch": machine.machine,
        "kernel": machine.release,
        "boot_id": boot_id(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "time": time.time(),
        "uptime": number(text("/proc/uptime").partition(" ")[0]),
        "user": user,
        "uid": os.geteuid(),
        "groups": groups,
        "cpus": os.cpu_count() or 0,
        "memory": memory(text("/proc/meminfo")),
    }


def release(content: str) -> tuple[str, str]:
    """Name and version of the system by os-release (man 5 os-release)."""
    rows = (line.strip().partition("=") for line in content.splitlines())
    values = {key: value.strip("\"'") for key, sep, value in rows if sep}
    return values.get("NAME", ""), values.get("VERSION_ID", "")


def memory(content: str) -> Memory:
    """/proc/meminfo in bytes; 0 for what it does not say."""
    rows = (line.partition(":") for line in content.splitlines())
    values = {key: int(number(value.strip().partition(" ")[0])) * 1024 for key, _, value in rows}
    total = values.get("MemTotal", 0)
    return {"total": total, "available": values.get("MemAvailable", 0)}


def names() -> tuple[str, list[str]]:
    """Our login name and the groups this very process is in: one that was added later counts after the next login."""
    user = name_of(os.geteuid()) or str(os.geteuid())
    groups = []
    for gid in sorted({os.getegid(), *os.getgroups()}):
        try:
            groups.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            groups.append(str(gid))
    return user, groups


def text(path: str) -> str:
    """A small file of the system; "" when it cannot be read (sysfs refuses some reads with EINVAL)."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode(errors="replace")
    except OSError:
        return ""


def number(written: str) -> float:
    """A number, 0 for what is none, or has no end."""
    try:
        value = float(written)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
