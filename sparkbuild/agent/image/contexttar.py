"""The tar of a build's context: names sorted, owner 0:0, two modes, one time; the bytes follow from the content."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import IO

from sparkbuild.agent.image.layer import checked
from sparkbuild.agent.store import tar
from sparkbuild.agent.wire.protocol import Reporter, config_error, integrity_error

_FOLDER = tar.Entry(tar.DIR, 0o755)


def file_of(content: bytes, *, executable: bool = False) -> tar.Entry:
    """A file by its bytes."""
    return tar.Entry(tar.FILE, _mode(executable), size=len(content), open=lambda: io.BytesIO(content))


def file_at(path: str, *, executable: bool = False) -> tar.Entry:
    """A file by its path."""
    return tar.Entry(tar.FILE, _mode(executable), size=os.path.getsize(path), open=lambda: open(path, "rb"))


def _link(target: str) -> tar.Entry:
    return tar.Entry(tar.LINK, 0o777, target=target)


class ContextTar:
    """Entries by name; `epoch` is the time of all of them."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._entries: dict[str, tar.Entry] = {}

    def add(self, name: str, entry: tar.Entry) -> None:
        """Add a name, and the folders that it lies in. AgentError when it is a trap, or there already."""
        place = checked(name, "the build context")
        if place in self._entries and entry.kind != tar.DIR:
            raise config_error("two things have one name in the build context", found=place)
        self._entries[place] = entry
        while place := place.rpartition("/")[0]:
            self._entries.setdefault(place, _FOLDER)

    def add_member(self, prefix: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add a member of another tar, which stays open until this one is written."""
        name = f"{prefix}/{checked(member.name, prefix)}"
        if member.isdir():
            self.add(name, _FOLDER)
        elif member.issym():
            self.add(name, _link(member.linkname))
        elif member.isreg():
            executable = bool(member.mode & 0o111)
            self.add(
                name, tar.Entry(tar.FILE, _mode(executable), size=member.size, open=lambda: _content(archive, member))
            )
        else:
            raise integrity_error("a source holds what is neither file, folder nor link", found=name)

    def add_path(self, name: str, path: str) -> None:
        """Add a file, folder or link of this node; a link is not followed."""
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            self.add(name, _link(os.readlink(path)))
        elif stat.S_ISDIR(mode):
            self.add(name, _FOLDER)
        else:
            self.add(name, file_at(path, executable=bool(mode & 0o111)))

    def write(self, path: str, reporter: Reporter) -> tuple[str, int]:
        """Write and flush it; its sha256 and size."""
        written = tar.write(
            path, self._entries, self._epoch, lambda size: reporter.progress("make the context", size, None)
        )
        return written.digest.hexdigest(), written.size


def _mode(executable: bool) -> int:  # noqa: FBT001 - the one thing it depends on
    return 0o755 if executable else 0o644


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    return archive.extractfile(member) or io.BytesIO()
