"""What one gate found out, and the shortening of answers for a message."""

from __future__ import annotations

import msgspec

SHOWN = 400  # characters of an answer in a message


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


def cut(text: str, limit: int = SHOWN) -> str:
    """The text on one line, at most `limit` characters of it."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def budget(max_tokens: int) -> str:
    """What to say of a reply that used up its tokens before it said anything."""
    return f"the answer did not fit max_tokens={max_tokens}: raise it; this is not garble"
