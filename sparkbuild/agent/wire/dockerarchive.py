"""The archive that `docker load` takes, as bytes in pieces: nothing of it is kept anywhere while it is sent."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

_END = tarfile.BLOCKSIZE * 2


class Member(NamedTuple):
    """One file of an archive: `content` gives its `size` bytes in pieces."""

    name: str
    size: int
    content: Callable[[], Iterable[bytes]]


def text(name: str, content: bytes) -> Member:
    """A small file."""
    return Member(name, len(content), lambda: [content])


def head(reference: str, config_name: str, config: bytes, layers: Sequence[str]) -> list[Member]:
    """What a docker-archive begins with: the image's name, its config, and its layers, by sha256 from the lowest."""
    paths = [layer_path(sha256) for sha256 in layers]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [reference], "Layers": paths}]).encode()
    return [text("manifest.json", manifest), text(config_name, config)]


def layer_path(sha256: str) -> str:
    """Where a layer stands in a docker-archive."""
    return f"{sha256}/layer.tar"


def size_of(members: Iterable[Member]) -> int:
    """The bytes of the archive."""
    return sum(tarfile.BLOCKSIZE + member.size + _padding(member.size) for member in members) + _END


def pieces(members: Iterable[Member]) -> Iterator[bytes]:
    """The archive."""
    for member in members:
        info = tarfile.TarInfo(member.name)
        info.size = member.size
        yield info.tobuf(tarfile.GNU_FORMAT)
        yield from member.content()
        yield bytes(_padding(member.size))
    yield bytes(_END)


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE
