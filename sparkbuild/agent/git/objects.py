"""Objects of a git repository, each believed only when its bytes have the name they were asked for by.

Git checks the objects it receives, not those it reads: a mirror that was truncated or changed on the disk is found
here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, NamedTuple

from sparkbuild.agent.git.command import argv, environment, start

_BLOCK = 1 << 20
_LIMIT = 16 << 20  # bytes of a commit or of one tree; the items of a tree take six times as much of memory
FILE, EXECUTABLE, LINK, FOLDER, GITLINK = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000
_MODES = {0o100664: FILE, **{mode: mode for mode in (FILE, EXECUTABLE, LINK, FOLDER, GITLINK)}}


class BrokenMirrorError(Exception):
    """An object is missing, or is not what its name says; the text says which."""


class HostileTreeError(ValueError):
    """A tree that nobody makes by accident; the text says why."""


class Commit(NamedTuple):
    """What is used of a commit: its tree, and when it was committed, in unix seconds."""

    tree: str
    time: int


class Item(NamedTuple):
    """One line of a tree object; `mode` is one of the five above."""

    mode: int
    name: bytes
    oid: str


class Objects:
    """A reader of one repository; not for two threads. `close` it."""

    def __init__(self, git_dir: str, extra: dict[str, str] | None = None) -> None:
        self.git_dir = git_dir
        self._process = start(argv(git_dir, ("cat-file", "--batch")), environment(extra), quiet=True)

    def close(self) -> None:
        """End the reader."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):  # what it did not read any more
                    pipe.close()

    def commit(self, oid: str) -> Commit:
        """Raises BrokenMirrorError, also when it is there as something else than a commit."""
        text = self._whole(oid, "commit").decode(errors="replace")
        head = text.partition("\n\n")[0]
        tree = re.match(r"tree ([0-9a-f]{40})\n", head)
        time = re.search(r"^committer .*> (\d{1,12}) [+-]\d{4}$", head, re.MULTILINE)
        if not tree or not time:
            raise BrokenMirrorError(f"commit {oid} names no tree or no time")
        return Commit(tree[1], int(time[1]))

    def tree(self, oid: str) -> list[Item]:
        """The items of one tree, as they stand in it. Raises BrokenMirrorError, HostileTreeError."""
        return list(_items(self._whole(oid, "tree"), oid))

    def size(self, oid: str) -> tuple[int, Iterator[bytes]]:
        """Bytes of a blob, and its bytes, which must be read to their end before anything else is asked.

        Raises BrokenMirrorError, at the end of the bytes too: what came before is to be thrown away then.
        """
        size = self._ask(oid, "blob")
        return size, self._blocks(oid, "blob", size)

    def blob(self, oid: str) -> bytes:
        """A small blob as a whole."""
        return self._whole(oid, "blob")

    def _whole(self, oid: str, kind: str) -> bytes:
        size = self._ask(oid, kind)
        if size > _LIMIT:
            raise HostileTreeError(f"{kind} {oid} has {size} bytes, more than {_LIMIT >> 20} MiB")
        return b"".join(self._blocks(oid, kind, size))

    def _pipe(self) -> IO[bytes]:
        pipe = self._process.stdout
        if pipe is None:
            raise BrokenMirrorError("git cat-file has no output")
        return pipe

    def _ask(self, oid: str, kind: str) -> int:
        """Ask for an object; its size in bytes."""
        try:
            if self._process.stdin:
                self._process.stdin.write(f"{oid}\n".encode())
                self._process.stdin.flush()
        except OSError:
            raise self._died(oid) from None
        words = self._pipe().readline().decode(errors="replace").split()
        if not words:
            raise self._died(oid)
        if len(words) != 3:
            raise BrokenMirrorError(f"{kind} {oid} is missing")
        if words[1] != kind:
            raise BrokenMirrorError(f"{oid} is a {words[1]}, not a {kind}")
        return int(words[2])

    def _blocks(self, oid: str, kind: str, size: int) -> Iterator[bytes]:
        digest = hashlib.sha1(f"{kind} {size}\0".encode(), usedforsecurity=False)
        left = size
        while left:
            block = self._pipe().read(min(left, _BLOCK))
            if not block:
                raise self._died(oid)
            digest.update(block)
            left -= len(block)
            yield block
        self._pipe().read(1)  # the line end after it
        if digest.hexdigest() != oid:
            raise BrokenMirrorError(f"{kind} {oid} holds other bytes: they make {digest.hexdigest()}")

    def _died(self, oid: str) -> BrokenMirrorError:
        self._process.kill()
        return BrokenMirrorError(f"{oid} cannot be read")


def _items(data: bytes, oid: str) -> Iterator[Item]:
    """The format of a tree object: `<octal mode> <name>`, a null byte, 20 bytes; one after the other."""
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        end = data.find(b"\0", space)
        if space < 0 or end < 0 or end + 21 > len(data) or not re.fullmatch(rb"[0-7]{5,6}", data[at:space]):
            raise HostileTreeError(f"tree {oid} is malformed at byte {at}")
        name = data[space + 1 : end]
        mode = _MODES.get(int(data[at:space], 8))
        if mode is None:
            raise HostileTreeError(f"{name!r} has the mode {data[at:space].decode()}, which git does not have")
        yield Item(mode, name, data[end + 1 : end + 21].hex())
        at = end + 21
