"""Which file a source is, and which version of it: what stands for its content while nobody knows a digest of that.

There is no other place that decides this. A version is taken before and after a file is read, with every part that is
resumed, and once more when the staging ends; where one differs, what was read is thrown away. The ctime is in it since
tools and people set an mtime back, and nobody sets back a ctime; device and inode, since a file can be replaced by
another one of the same size and times.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import NamedTuple


class Version(NamedTuple):
    """`device` names the file system as it is mounted ("nfs4 10.0.0.9:/models"), "" where the kernel names none: the
    number of an NFS mount is another one after each mount, and a copy of hours is not to be given up for that. `inode`
    is 0 on FUSE, whose inode numbers last only as long as the kernel remembers them.
    """

    device: str
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def text(self) -> str:
        """All of it in one line, to be kept and compared."""
        return f"{self.inode} {self.size} {self.mtime_ns} {self.ctime_ns} {self.device}"

    @property
    def numbers(self) -> dict[str, int]:
        """All but the device, for what is told of a file part by part."""
        return {"inode": self.inode, "size": self.size, "mtime_ns": self.mtime_ns, "ctime_ns": self.ctime_ns}


def of(status: os.stat_result) -> Version:
    """The version of a file, as its open descriptor tells it (see nas.fstat)."""
    device, lasting = _file_system(status.st_dev)
    inode = status.st_ino if lasting else 0
    return Version(device, inode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def parsed(text: str) -> Version:
    """A version from its text."""
    inode, size, mtime_ns, ctime_ns, device = text.split(" ", 4)
    return Version(device, int(inode), int(size), int(mtime_ns), int(ctime_ns))


def told(now: Version, before: Version) -> tuple[str, str]:
    """What differs between two versions, in words: (of `now`, of `before`)."""
    if (now.device, now.inode) != (before.device, before.inode):
        return _as_file(now), _as_file(before)
    if (now.size, now.mtime_ns) != (before.size, before.mtime_ns):
        return (
            f"{now.size} bytes, changed at {moment(now.mtime_ns)}",
            f"{before.size} bytes, changed at {moment(before.mtime_ns)}",
        )
    because = "it was written to, or linked, or its owner or mode was changed"
    return (
        f"size and mtime as before, but a ctime of {moment(now.ctime_ns)}: {because}",
        f"a ctime of {moment(before.ctime_ns)}",
    )


def _as_file(version: Version) -> str:
    place = f" of {version.device}" if version.device else ""
    return f"inode {version.inode}{place}, {version.size} bytes, changed at {moment(version.mtime_ns)}"


def moment(nanoseconds: int) -> str:
    """A time to the millisecond: two versions may be of one second."""
    second, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(second))}.{rest // 10**6:03d} UTC"


@cache
def _file_system(device: int) -> tuple[str, bool]:
    """(its name, whether its inode numbers last)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            line = next((line for line in file if line.split(" ", 3)[2] == number), "")
    except OSError:
        line = ""
    kind, _, source = line.rpartition(" - ")[2].strip().partition(" ")
    if not kind:
        return "", True
    return f"{kind} {source.partition(' ')[0]}", not kind.startswith("fuse")
