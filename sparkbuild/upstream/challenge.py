"""What a registry answers to who has no login: which kinds it takes, and where tokens are (RFC 7235, RFC 6750)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import NamedTuple

_LONGEST = 8192  # characters; of what is no such header, reading takes the square of its length
_PART = re.compile(r'\s*,?\s*(?:(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([A-Za-z][\w-]*)(?=\s+\w|\s*,|\s*$))')


class Challenge(NamedTuple):
    """`kind` is "basic" or "bearer"; `fields` are realm, service, scope."""

    kind: str
    fields: dict[str, str]


def challenges(headers: Iterable[str]) -> list[Challenge]:
    """All of them, in the order of the headers WWW-Authenticate."""
    offered: list[Challenge] = []
    for header in headers:
        for match in _PART.finditer(header[:_LONGEST]):
            if match[4]:
                offered.append(Challenge(match[4].lower(), {}))
            elif offered:
                value = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2])
                offered[-1].fields[match[1].lower()] = value
    return offered


def seconds(retry_after: str) -> float | None:
    """How long a Retry-After says to wait, None for one that says nothing."""
    text = retry_after.strip()
    if text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, IndexError):
        return None
