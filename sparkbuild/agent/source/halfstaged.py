"""A source that is itself a staged folder must be whole: one that is being staged, or was not staged to its end, has
some of its files under their names, and nothing else tells them from all of them.
"""

from __future__ import annotations

import os

from sparkbuild.agent.disk import nas
from sparkbuild.agent.ledger import folder, ledger
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.wire.layout import DRAFT_FILE, LEDGER_FILE, LOCK, OURS, OWNER_FILE, STAMPS_FILE
from sparkbuild.agent.wire.protocol import integrity_error

_KEPT = (LOCK, OWNER_FILE, DRAFT_FILE, LEDGER_FILE, STAMPS_FILE)


def refuse(root: str) -> None:
    """Raise AgentError, kind integrity, when a folder, or one that it is in, is a staged one and not whole."""
    place = root
    while place not in ("", "/"):
        refuse_one(place)
        place = os.path.dirname(place)


def refuse_one(place: str) -> None:
    """The same for one folder alone."""
    kept = set(nas.names(f"{place}/{OURS}"))
    if not any(name in _KEPT or name.endswith((".part", ".chunks")) for name in kept):
        return  # a workspace has a folder of that name too
    advice = "stage that folder to its end first, then run again"
    if busy := folder.busy(place):
        state, advice = f"it is being staged now ({busy})", "wait for that staging, then run again"
    elif Draft(place).is_there():
        state = f"a staging of it did not end: {OURS}/draft.jsonl is there"
    elif not os.path.lexists(ledger.path_of(place)):
        state = f"no ledger in its {OURS}: never staged to its end, or emptied"
    else:
        return
    raise integrity_error(
        "the source is a staged folder that is not whole",
        where=place,
        found=state,
        wanted="a folder that was staged to its end, with its ledger",
        next=advice,
    )
