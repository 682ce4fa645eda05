"""What became of a folder that was evicted: a small record for each beside the index, until something is staged there
again.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import read_json, write_json
from sparkbuild.agent.ledger import index
from sparkbuild.agent.wire.layout import OURS

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import Evicted

FORMAT = "sparkbuild-evicted/v1"
_LONGEST = 64 << 10  # bytes of a record that anyone would read


def note(store: str, dst: str, goal: str) -> None:
    """Keep that a folder was removed now, and what for. A disk that is full keeps nothing of it: it only explains."""
    fields = {"format": FORMAT, "dst": dst, "at": time.time(), "for": goal}
    with contextlib.suppress(OSError):
        write_json(index.path_of(store, dst, index.EVICTED), fields)


def told(store: str, dst: str) -> Evicted | None:
    """When and for what a folder was evicted in which nothing was begun since; None of any other."""
    record = read_json(index.path_of(store, dst, index.EVICTED), _LONGEST) if store else None
    if record is None or record.get("format") != FORMAT or record.get("dst") != dst or os.path.lexists(f"{dst}/{OURS}"):
        return None
    at, goal = record.get("at"), record.get("for")
    if not isinstance(at, int | float) or isinstance(at, bool) or not isinstance(goal, str) or not goal.isprintable():
        return None
    return {"at": at, "for": goal}
