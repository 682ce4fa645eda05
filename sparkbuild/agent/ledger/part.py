"""A file that is not whole yet: `.sparkbuild/<name>.part`, and a list of the chunks that are right in it.

It lies in our own folder, not beside its final name: an engine that takes every `*.gguf*` or `*.safetensors*` of a
folder never meets it, what it leaves after a kill is found in one place, and it is the same file system.
`<name>.chunks` is one JSON line saying what is being copied ({"part": 1, "digest": algorithm, "chunk": bytes, "size",
"source": identity, "extents"?}), then the 8-byte digest of each chunk in order, written after the chunk was; zeros, or
the list's end, stand for "not yet". Chunks may come in any order. The list is a hint: whoever uses a chunk of a part
reads it and compares, since after a kill, or while a damaged file is mended, it may say more than is true. Both files
are opened before their names vanish, and stay readable by who holds them: the part becomes the file by a rename, the
list is unlinked after that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.disk.held import FILE, Held, set_mode
from sparkbuild.agent.disk.pages import Pages
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.identity import forms
from sparkbuild.agent.ledger.ledger import Identity
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.wire.layout import OURS

ENDS = (".part", ".chunks")
_NONE = bytes(WIDTH)


def stem(name: str) -> str:
    """The name of a part without its suffix: readable, unique, and never too long for a file system."""
    shown = os.path.basename(name).encode()[:100].decode(errors="ignore")
    return f"{shown}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class Part:
    """The part of one file. `source` says by content what it is copied from; {} when that cannot be said, and then
    nothing is ever resumed: chunks of two versions of a source must not meet in one file.
    """

    # There is one for each file of a folder, of which there may be 100,000.
    __slots__ = (
        "_algorithm",
        "_dst",
        "_fd",
        "_first",
        "_known",
        "_renewed",
        "_source",
        "again",
        "name",
        "shape",
        "title",
    )

    def __init__(
        self,
        dst: str,
        name: str,
        shape: Shape,
        source: Identity,
        algorithm: str,
        *,
        title: str = "",
        again: str = "",
    ) -> None:
        self.name, self.shape, self.title, self.again, self._algorithm = name, shape, title or name, again, algorithm
        self._dst, self._source = dst, source
        self._known = self._read() if source else b""
        self._fd, self._first, self._renewed = -1, 0, False

    @property
    def path(self) -> str:
        """Where its bytes are."""
        return f"{self._dst}/{self._stem}.part"

    @property
    def _list(self) -> str:
        return f"{self._dst}/{self._stem}.chunks"

    @property
    def _stem(self) -> str:
        return f"{OURS}/{stem(self.name)}"

    @property
    def _header(self) -> bytes:
        size, source = self.shape.size, self._source
        header = {"part": 1, "digest": self._algorithm, "chunk": CHUNK, "size": size, "source": source}
        header |= {"extents": self.shape.extents} if self.shape.sparse else {}
        return json.dumps(header, sort_keys=True).encode() + b"\n"

    def _read(self) -> bytes:
        try:
            with open(self._list, "rb") as file:
                if os.path.islink(self.path) or not os.path.isfile(self.path):
                    return b""
                header, newest = file.readline(), self._source
                for self._source in forms(newest):  # the header is as long as the one that it goes on with
                    if header == self._header:
                        return file.read()
                self._source = newest
        except OSError:
            pass
        return b""

    def known(self, index: int) -> bytes | None:
        """The digest that a chunk in the part should have, None when the chunk is not there."""
        value = self._known[index * WIDTH : (index + 1) * WIDTH]
        return value if len(value) == WIDTH and value != _NONE else None

    def empty(self) -> bool:
        """True when no chunk of it is worth keeping."""
        if self._known or not os.path.exists(self._list):
            return not self._known
        if not self.shape.sparse:
            return os.path.getsize(self._list) <= len(self._header)
        with open(self._list, "rb") as file:
            return file.read()[len(self._header) :] in (b"", bytes(self.shape.blank(self._algorithm)))

    @property
    def resumable(self) -> bool:
        """True when chunks of it may be used."""
        return bool(self._known)

    def lacking(self) -> int:
        """Bytes of data that are not in it, as far as its list says."""
        shape = self.shape
        return sum(shape.weight(n) for n in shape.with_data() if not self.known(n)) if self._known else shape.data

    def allocated(self) -> int:
        """Bytes on the disk that a resumed copy need not take again."""
        return os.lstat(self.path).st_blocks * 512 if self._known else 0

    def adopt(self, chunks: bytes) -> None:
        """Turn the file with some bad chunks into a part whose good ones are kept. The list is written before the file
        is moved, so that a kill in between loses nothing.
        """
        self.remove()
        with Held(self._dst) as held:
            with os.fdopen(held.create(f"{self._stem}.chunks"), "wb") as file:
                file.write(self._header + chunks)
                file.flush()
                os.fdatasync(file.fileno())
            held.rename(self.name, f"{self._stem}.part")
        self._known = chunks

    def give_back(self) -> None:
        """Undo `adopt`, when it could not be made whole: a damaged file is more than none, and is mended next time."""
        with suppress(OSError), Held(self._dst) as held:
            if held.lstat(self.name) is None:
                held.rename(f"{self._stem}.part", self.name)
                self.remove()

    def go_on(self, chunks: bytes) -> None:
        """Go on with what a mending left, if it left anything. These digests say which of its chunks are right,
        whatever they were read from. Nothing is written yet.
        """
        if os.path.isfile(self.path) and not os.path.islink(self.path):
            self._known, self._renewed = chunks, True

    @contextmanager
    def opened(self) -> Iterator[Pages]:
        """The part open for reading and writing, begun anew unless chunks of it are known."""
        if not self._known:
            self.remove()
        with Held(self._dst) as held:
            fd = held.open(f"{self._stem}.part", os.O_RDWR | os.O_CREAT)
        try:
            set_mode(fd, FILE)
            with Held(self._dst) as held:
                self._fd = held.open(f"{self._stem}.chunks", os.O_RDWR | os.O_CREAT)
            header = self._header
            self._first = len(header)
            if self._renewed:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, header + self._known, 0)
            elif not self._known:
                blank = self.shape.blank(self._algorithm) if self.shape.sparse else b""
                os.pwrite(self._fd, header + blank, 0)
            yield Pages(fd)
        finally:
            os.close(fd)
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def note(self, index: int, value: bytes) -> None:
        """This chunk is in the part now."""
        os.pwrite(self._fd, value, self._first + index * WIDTH)

    def remove(self) -> None:
        """Forget the part and its list."""
        self._known = b""
        with Held(self._dst) as held:
            for end in ENDS:
                held.unlink(f"{self._stem}{end}")

    def finish(self) -> None:
        """Give the whole part its final name; on the disk when this returns."""
        with Held(self._dst) as held:
            held.rename(f"{self._stem}.part", self.name)
            held.flush(os.path.dirname(self.name))
        self.remove()
