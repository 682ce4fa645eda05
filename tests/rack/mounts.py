"""Mounts as a process sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    at: str
    kind: str
    source: str


def seen_by(pid: int | str = "self") -> list[Mount]:
    """All mounts in the mount namespace of a process. The format: proc_pid_mountinfo(5)."""
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().splitlines()
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, source = after.split(" ")[:2]
        found.append(Mount(_plain(before.split(" ")[4]), kind, _plain(source)))
    return found


def _plain(text: str) -> str:
    # Space, tab, newline and backslash are written as three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
