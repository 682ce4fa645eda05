"""A file that is not whole yet: `.sparkbuild/<name>.part`, and a list of the chunks that are right in it.

It lies in our own folder, not beside its final name: an engine that takes every `*.gguf*` or `*.safetensors*` of a
folder never meets it, what it leaves after a kill is found in one place, and it is the same file system.
`<name>.chunks` is one JSON line saying what is being copied, then 8 bytes per chunk, written after the chunk was;
zeros stand for "not yet". After a kill the list is a hint: every chunk is read and compared before it is believed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparkbuild.agent.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger import OURS
from sparkbuild.agent.pages import Pages

_NONE = bytes(WIDTH)


def stem(name: str) -> str:
    """The name of a part without its suffix: readable, unique, and never too long for a file system."""
    shown = os.path.basename(name).encode()[:100].decode(errors="ignore")
    return f"{shown}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class Part:
    """The part of one file. `source` says by content what it is copied from; {} when that cannot be said, and then
    nothing is ever resumed: chunks of two versions of a source must not meet in one file.
    """

    def __init__(self, dst: str, name: str, size: int, source: dict[str, Any], algorithm: str) -> None:
        self.name = name
        self.path = f"{dst}/{OURS}/{stem(name)}.part"
        self._list = f"{dst}/{OURS}/{stem(name)}.chunks"
        header = {"part": 1, "digest": algorithm, "chunk": CHUNK, "size": size, "source": source}
        self._header = json.dumps(header, sort_keys=True).encode() + b"\n"
        self._known = self._read() if source else b""
        self._fd = -1

    def _read(self) -> bytes:
        try:
            with open(self._list, "rb") as file:
                if os.path.islink(self.path) or not os.path.isfile(self.path) or file.readline() != self._header:
                    return b""
                return file.read()
        except OSError:
            return b""

    def known(self, index: int) -> bytes | None:
        """The digest that a chunk in the part should have, None when the chunk is not there."""
        value = self._known[index * WIDTH : (index + 1) * WIDTH]
        return value if len(value) == WIDTH and value != _NONE else None

    def empty(self) -> bool:
        """True when no chunk of it is worth keeping."""
        return not self._known and (not os.path.exists(self._list) or os.path.getsize(self._list) <= len(self._header))

    @property
    def resumable(self) -> bool:
        """True when chunks of it may be used."""
        return bool(self._known)

    def allocated(self) -> int:
        """Bytes on the disk that a resumed copy need not take again."""
        return os.lstat(self.path).st_blocks * 512 if self._known else 0

    def adopt(self, path: str, chunks: bytes) -> None:
        """Turn a file with some bad chunks into a part whose good ones are kept. The list is written before the file is
        moved, so that a kill in between loses nothing.
        """
        self.remove()
        with open(self._list, "wb") as file:
            file.write(self._header + chunks)
            file.flush()
            os.fdatasync(file.fileno())
        os.rename(path, self.path)
        self._known = chunks

    @contextmanager
    def opened(self) -> Iterator[Pages]:
        """The part open for reading and writing, begun anew unless chunks of it are known."""
        if not self._known:
            self.remove()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            self._fd = os.open(self._list, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            if not self._known:
                os.pwrite(self._fd, self._header, 0)
            yield Pages(fd)
        finally:
            os.close(fd)
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def note(self, index: int, value: bytes) -> None:
        """This chunk is in the part now."""
        os.pwrite(self._fd, value, len(self._header) + index * WIDTH)

    def remove(self) -> None:
        """Forget the part and its list."""
        for path in (self.path, self._list):
            if os.path.lexists(path):
                os.unlink(path)
