"""A staged folder out of which what we put there is removed, and nothing else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection
from types import TracebackType

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import content, stamps, way
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.wire.layout import DRAFT_FILE, LOCK, NAMES_FILE, OURS

_DRAFTS = (DRAFT_FILE, NAMES_FILE)  # know the rest, so they go last


class Place:
    """The folder, held: no link in it is followed, and no mount in it is entered."""

    def __init__(self, dst: str) -> None:
        if os.path.islink(dst):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), dst)
        self.dst, self.held = dst, Held(dst)
        self.removed: list[str] = []

    def __enter__(self) -> Place:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.close()

    def unlink_file(self, record: Record, proven: stamps.Stamp | None) -> int | None:
        """Remove a staged file; the bytes that the disk gets back, None when no such file is there. One that is another
        by its stamp is read: a file of the user's own has taken the name since, unless it holds what was staged.
        """

        def is_ours(status: os.stat_result) -> bool:
            if not stat.S_ISREG(status.st_mode):
                return False
            known = stamps.of(status) == proven
            return known or not content.check(self.held.at(record.name), record, lambda _size: None).text

        return self._unlink(record.name, is_ours)

    def unlink_name(self, name: str, inodes: Collection[tuple[int, int]]) -> int | None:
        """Remove a name of an export: one of its hard links, or an empty file. Where its manifest is gone, and nobody
        knows its links, a file that has other names.
        """

        def is_ours(status: os.stat_result) -> bool:
            linked = (status.st_dev, status.st_ino) in inodes or (not inodes and status.st_nlink > 1)
            return stat.S_ISREG(status.st_mode) and (linked or not status.st_size)

        return self._unlink(name, is_ours)

    def unlink_link(self, name: str, text: str) -> bool:
        """Remove a link that says what we made it say; "": nothing is known of that."""

        def is_ours(status: os.stat_result) -> bool:
            return stat.S_ISLNK(status.st_mode) and text in {"", self.held.readlink(name)}

        return self._unlink(name, is_ours) is not None

    def _unlink(self, name: str, is_ours: Callable[[os.stat_result], bool]) -> int | None:
        status = self.held.lstat(name)
        if status is None or not is_ours(status):
            return None
        self.held.unlink(name)
        self.removed.append(name)
        return status.st_blocks * 512 if status.st_nlink == 1 else 0

    def unlink_ours(self) -> int:
        """Remove what we keep beside the data, but the lock that is held."""
        freed = 0
        names = [name for name in self.held.listdir(OURS) if name != LOCK]
        for name in sorted(names, key=lambda name: name in _DRAFTS):
            status = self.held.lstat(f"{OURS}/{name}")
            if status is not None and not stat.S_ISDIR(status.st_mode):
                self.held.unlink(f"{OURS}/{name}")
                freed += status.st_blocks * 512
        self.held.flush(OURS)
        return freed

    def others(self) -> list[str]:
        """Remove folders that are empty now; what is left in the folder, which is not ours. A mount is named, and what
        is in it is not looked at.
        """
        for name in reversed(way.steps(self.removed)):
            self.held.rmdir(name)
        left, folders = [], [""]
        device = os.fstat(self.held.fd).st_dev
        while folders:
            above = folders.pop()
            for inner in self.held.listdir(above):
                name = f"{above}/{inner}".lstrip("/")
                status = self.held.lstat(name)
                if status is None or name == OURS:
                    continue
                if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                    folders.append(name)
                else:
                    left.append(name)
        return sorted(left)

    def close_up(self) -> None:
        """The lock, which others look at again when they waited for it, our folder, and the folder, if it is empty."""
        self.held.unlink(f"{OURS}/{LOCK}")
        if self.held.rmdir(OURS):
            with Held(os.path.dirname(self.dst)) as above:
                above.rmdir(os.path.basename(self.dst))
