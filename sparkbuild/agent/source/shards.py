"""The files of a sharded set, by their names: `model-00002-of-00003.safetensors` is one of three.

No two of a set have the same content: each says itself which tensors it has. Two that lead to the same bytes are a
model that loads, and is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHARD = re.compile(r"(.*)-(\d{2,})-of-(\d{2,}\.(?:safetensors|bin|gguf))", re.DOTALL)


def with_one_content(places: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Of (path, where its bytes are): the first two paths of one set that have the same, and what that is."""
    seen: dict[tuple[str, str, str], str] = {}
    for path, place in places:
        match = _SHARD.fullmatch(path)
        if match:
            other = seen.setdefault((match[1], match[3], place), path)
            if other != path:
                return other, path, place
    return None
