"""Chunk digests: the fastest 8-byte digest this python can compute, named so that another python can check it.

A chunk digest finds bad bytes and names the 4 MiB to fetch again; that the content is the right one is sha256's
matter. Order of choice: python `xxhash`, then the system's libxxhash.so.0 (every Debian and Ubuntu has it: apt stands
on it), then blake2b cut to 8 bytes. The first two are the same algorithm, `xxh3_64`, 15 times faster than blake2b.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

CHUNK = 4 << 20  # bytes; fits the caches, and is what one bad byte costs to fetch again
WIDTH = 8  # bytes of one chunk digest

XXH3, BLAKE2B = "xxh3_64", "blake2b_8"

# A reused buffer (bytearray, or a view of one) in, 8 bytes out: big-endian, as xxhash prints its hex.
Digest = Callable[[Any], bytes]

# Seed 0. The long vector takes the wide path, which is a different code than the one for short input. A library that
# does not fit this python is not always an ImportError: wrong digests without an error have been seen.
_VECTORS = ((b"", "2d06800538d394c2"), (b"abc", "78af5f94892f3950"), (bytes(range(256)) * 17, "56f05ca6814af06f"))


def best() -> str:
    """The name of the algorithm to use for new data on this node."""
    return XXH3 if function(XXH3) else BLAKE2B


def first_usable(names: Iterable[str]) -> str:
    """The first of these algorithms that this python can compute, else the best one it has."""
    return next((name for name in names if function(name)), "") or best()


@cache
def function(name: str) -> Digest | None:
    """The digest of that name, None when this python cannot compute it. Loaded when first asked for (ctypes: 8 ms)."""
    if name == BLAKE2B:
        return _blake2b
    if name == XXH3:
        for load in (_from_wheel, _from_system):
            loaded = load()
            if loaded is not None and all(loaded(bytearray(data)).hex() == want for data, want in _VECTORS):
                return loaded
    return None


def count(size: int) -> int:
    """How many chunks a file of `size` bytes has; an empty file has none."""
    return -(-size // CHUNK)


def _blake2b(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=WIDTH).digest()


def _from_wheel() -> Digest | None:
    try:
        import xxhash  # noqa: PLC0415 - most nodes have none
    except ImportError:
        return None
    return xxhash.xxh3_64_digest


def _from_system() -> Digest | None:
    try:
        import ctypes  # noqa: PLC0415 - 2 ms, and most looks compute no digest

        hash64 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    except (ImportError, OSError, AttributeError):  # no ctypes, no library, or one from before XXH3 (0.8.0)
        return None
    hash64.restype, hash64.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

    def digest(data: Any) -> bytes:
        size = len(data)  # by address, not by copy; ctypes lets other threads run meanwhile
        value: int = hash64((ctypes.c_char * size).from_buffer(data) if size else None, size)
        return value.to_bytes(WIDTH, "big")

    return digest
