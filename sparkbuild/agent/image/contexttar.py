"""The tar of a build's context: names sorted, owner 0:0, two modes, one time; the bytes follow from the content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass
from typing import IO, Any, Protocol

from sparkbuild.agent.disk.held import created
from sparkbuild.agent.image.layer import checked
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_BLOCK = 1 << 20


class Entry(Protocol):
    """What a name stands for."""

    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        """Set type, mode and size; the content of a file."""


@dataclass(frozen=True)
class File:
    """A file by its bytes."""

    content: bytes
    executable: bool = False

    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        """See Entry."""
        info.size, info.mode = len(self.content), _mode(self.executable)
        return io.BytesIO(self.content)


@dataclass(frozen=True)
class Content:
    """A file by its path."""

    path: str
    executable: bool = False

    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        """See Entry."""
        info.size, info.mode = os.path.getsize(self.path), _mode(self.executable)
        return open(self.path, "rb")


@dataclass(frozen=True)
class _Folder:
    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        return None


@dataclass(frozen=True)
class _Link:
    target: str

    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, self.target
        return None


@dataclass(frozen=True)
class _Member:
    archive: tarfile.TarFile
    member: tarfile.TarInfo

    def fill(self, info: tarfile.TarInfo) -> IO[bytes] | None:
        info.size, info.mode = self.member.size, _mode(bool(self.member.mode & 0o111))
        return self.archive.extractfile(self.member)


class ContextTar:
    """Entries by name; `epoch` is the time of all of them."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        """Add a name, and the folders that it lies in. AgentError when it is a trap, or there already."""
        place = checked(name, "the build context")
        if place in self._entries and not isinstance(entry, _Folder):
            raise AgentError("two things have one name in the build context", kind="config", found=place)
        self._entries[place] = entry
        while place := place.rpartition("/")[0]:
            self._entries.setdefault(place, _Folder())

    def add_member(self, prefix: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Add a member of another tar, which stays open until this one is written."""
        name = f"{prefix}/{checked(member.name, prefix)}"
        if member.isdir():
            self.add(name, _Folder())
        elif member.issym():
            self.add(name, _Link(member.linkname))
        elif member.isreg():
            self.add(name, _Member(archive, member))
        else:
            raise AgentError("a source holds what is neither file, folder nor link", kind="integrity", found=name)

    def add_path(self, name: str, path: str) -> None:
        """Add a file, folder or link of this node; a link is not followed."""
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            self.add(name, _Link(os.readlink(path)))
        elif stat.S_ISDIR(mode):
            self.add(name, _Folder())
        else:
            self.add(name, Content(path, executable=bool(mode & 0o111)))

    def write(self, path: str, reporter: Reporter) -> tuple[str, int]:
        """Write and flush it; its sha256 and size."""
        with created(path) as file:
            out = _Hashed(file, reporter)
            # GNU format: the same bytes from every Python, and long names that docker reads
            with tarfile.open(  # type: ignore[call-overload]
                fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape"
            ) as tar:
                for name in sorted(self._entries):
                    info: Any = tarfile.TarInfo(name)  # owner 0:0 without names
                    info.mtime = self._epoch
                    content = self._entries[name].fill(info)
                    if content is None:
                        tar.addfile(info)
                    else:
                        with content:
                            tar.addfile(info, content)
            file.flush()
            os.fsync(file.fileno())
        return out.digest.hexdigest(), out.size


class _Hashed:
    def __init__(self, file: IO[bytes], reporter: Reporter) -> None:
        self._file = file
        self._reporter = reporter
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self._reporter.progress("make the context", self.size, None)
        return self._file.write(data)


def _mode(executable: bool) -> int:  # noqa: FBT001 - the one thing it depends on
    return 0o755 if executable else 0o644
