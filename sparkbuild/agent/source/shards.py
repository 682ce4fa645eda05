"""The files of a sharded set, by their names (`model-00002-of-00003.safetensors` is one of three) and by their index.

No two of a set have the same content: each says itself which tensors it has. Two that lead to the same bytes are a
model that loads, and is wrong; a set that lacks one is a model that does not load, hours later.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from sparkbuild.agent.disk import nas
from sparkbuild.agent.source.shardindex import WANTED, ShardIndex, file_names
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

INDEXES = (".safetensors.index.json", ".bin.index.json")
_SHARD = re.compile(r"(.*)-(\d{2,})-of-(\d{2,})\.(safetensors|bin|gguf)", re.DOTALL)
_MOST = 10_000  # shards of a set that anybody has: a name may say any number
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BLOCK = 1 << 20
_PIECE = 64 << 10
AGAIN = "compare it with the one it was downloaded or copied from, and fetch it again"
_LONGEST = 1 << 20  # bytes of a string in an index, far more than any name has


def with_one_content(places: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Of (path, where its bytes are): the first two paths of one set that have the same, and what that is."""
    seen: dict[tuple[str, str, str, str], str] = {}
    for path, place in places:
        match = _SHARD.fullmatch(path)
        if match:
            other = seen.setdefault((match[1], match[3], match[4], place), path)
            if other != path:
                return other, path, place
    return None


def of_sets(paths: Iterable[str]) -> set[str]:
    """All files of the sets that these are of, by their names."""
    sets = {match.group(1, 3, 4): match[2] for path in paths if (match := _SHARD.fullmatch(path))}
    return {
        f"{start}-{number:0{len(like)}}-of-{total}.{end}"
        for (start, total, end), like in sets.items()
        if int(total) <= _MOST
        for number in range(1, int(total) + 1)
    }


def of_index(path: str, name: str) -> set[str]:
    """The files that an index at `path` names, as paths beside `name`. Raises AgentError, kind integrity, for one that
    was cut off, and for what is no index.
    """

    def look() -> tuple[ShardIndex, bool]:
        index = ShardIndex()
        for block in nas.blocks(path, _BLOCK):
            index.feed(block)
        return index, index.end()

    index, is_whole = nas.patient(path, look)
    if not is_whole:
        raise cut_off(path)
    names, odd = file_names(index.names)
    if index.problem or odd:
        raise integrity_error(
            "the index of a model is none",
            where=path,
            found=index.problem or f"its weight_map names {odd}, which can be no file beside it",
            wanted=WANTED,
            next=AGAIN,
        )
    folder = os.path.dirname(name)
    return {os.path.join(folder, text) for text in names}


def unquoted(text: bytes) -> str:
    """A string of JSON, as it stands in a file, "" for what is none."""
    try:
        return str(json.loads(text))
    except ValueError:
        return ""


def cut_off(path: str) -> AgentError:
    """The error for an index of which the end is not there."""
    return integrity_error(
        "the index of a model was cut off",
        where=path,
        found="not all that is opened in it is closed",
        wanted="a JSON object",
        next=AGAIN,
    )


class Whole:
    """Is JSON that passes in blocks all there? Whatever is opened in it must be closed."""

    def __init__(self) -> None:
        self._depth, self._rest, self._opened = 0, b"", False

    def feed(self, block: bytes | memoryview) -> None:
        """One more block."""
        for at in range(0, len(block), _PIECE):
            if len(self._rest) <= _LONGEST:  # else a string without an end
                self._feed(bytes(block[at : at + _PIECE]))

    def _feed(self, piece: bytes) -> None:
        text = _STRING.sub(b"", self._rest + piece)
        at = text.find(b'"')
        text, self._rest = (text, b"") if at < 0 else (text[:at], text[at:])
        opened = text.count(b"{") + text.count(b"[")
        self._opened = self._opened or bool(opened)
        self._depth += opened - text.count(b"}") - text.count(b"]")

    @property
    def is_whole(self) -> bool:
        """So far."""
        return self._opened and not self._depth and not self._rest
