"""A key: the fingerprint of everything that decides a result, kept together with its named parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

SHORT = 12  # hex digits of a key in names and on screen: 48 bits, ample for one workspace

_encoder = msgspec.json.Encoder(order="sorted")


class Key:
    """Named parts and their sha256.

    Parts hold content identities and plain settings (JSON values), never mtimes and never absolute
    paths: the same inputs give the same key in another checkout and on another machine.
    """

    __slots__ = ("_digest", "parts")

    def __init__(self, parts: Mapping[str, object]) -> None:
        self.parts: dict[str, object] = dict(parts)
        self._digest = ""

    @property
    def digest(self) -> str:
        """64 hex digits: sha256 over the canonical JSON (sorted keys, no spaces, UTF-8) of the parts."""
        if not self._digest:
            self._digest = hashlib.sha256(_encoder.encode(self.parts)).hexdigest()
        return self._digest

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest."""
        return self.digest[:SHORT]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Key({self.short})"
