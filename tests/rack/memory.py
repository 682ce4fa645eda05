"""What a node costs in memory."""

from __future__ import annotations

import os
import re
from contextlib import suppress


def pss_mb(init: int) -> float:
    """MB of the processes in the pid namespace of `init` (containers have their own), shared pages in proportion."""
    total = 0
    space = os.stat(f"/proc/{init}/ns/pid").st_ino
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}/ns/pid").st_ino == space:
                with open(f"/proc/{name}/smaps_rollup", encoding="ascii") as file:
                    found = re.search(r"^Pss:\s+(\d+) kB", file.read(), re.MULTILINE)
                total += int(found[1]) if found else 0
    return total * 1024 / 1e6
