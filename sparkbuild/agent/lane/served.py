"""When staged folders were last served from, as the index keeps it: the longest unused ones are evicted first."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from sparkbuild.agent.lane import records, uses
from sparkbuild.agent.ledger import index


def note_served(request: dict[str, Any]) -> None:
    """Note which folders the running lane of the request's recipe uses. That is known of a lane while it runs: so when
    it was launched, when it is ready, and before it is stopped.
    """
    found = index.entries(request["store"])
    if not found:
        return
    shelf = records.shelf_of(request)
    used = [one for one in found if request["recipe"] in uses.users(request["store"], one.dst, shelf)]
    with contextlib.suppress(OSError):  # only a hint for what to remove first: no lane fails of it
        for one in used:
            index.write(request["store"], one._replace(served_at=time.time()))
