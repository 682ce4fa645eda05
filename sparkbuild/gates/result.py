"""What one gate found out."""

from __future__ import annotations

import msgspec


class GateResult(msgspec.Struct, frozen=True):
    """One gate's outcome. `message` says in one line what is wrong, and is empty when the gate passed.

    `answer` is what the model said, cut; `expected` what it should have said; `seconds` the time of the request.
    """

    id: str
    kind: str
    ok: bool
    answer: str
    expected: str
    message: str = ""
    seconds: float = 0.0


def budget(max_tokens: int) -> str:
    """What to say of a reply that used up its tokens before it said anything."""
    return f"the answer did not fit max_tokens={max_tokens}: raise it; this is not garble"
