"""Looking at files and folders on a NAS: by opening them, never by `stat` of a path, and with some patience.

NFS answers `stat` from a cache that is seconds old, and "there is no such file" from one that is up to 45 s old; an
open descriptor and the list of an open folder are true. ESTALE and EIO come when a server restarts or a file was
replaced between two steps; they pass, or they are told after a few tries. Whatever goes wrong names the path here, and
never a file of ours that the bytes were meant for.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from sparkbuild.agent.disk.questions import asking
from sparkbuild.agent.wire.protocol import AgentError, config_error

PAUSES = (0.1, 0.4, 1.0, 2.0)  # seconds before each further try
_PASSING = (errno.ESTALE, errno.EIO)
# What a path is, or that it may not be used, who asked knows how to tell. All else is the file system's own trouble: a
# server that is away (ETIMEDOUT), a FUSE program that died (ENOTCONN), a ticket that ran out.
_OF_THE_PATH = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO,
    errno.EACCES, errno.EPERM,
)  # fmt: skip
_T = TypeVar("_T")
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_EMPTY_PATH, _FORCE_SYNC, _BASIC = 0x1000, 0x2000, 0x7FF  # statx(2): of the descriptor itself; ask the server; all
_STATX = 256  # bytes of its answer
_CORRECT = "correct `src` of this staging block"
_OCTAL = re.compile(r"\\([0-7]{3})")  # how mountinfo writes a space


def patient(path: str, look: Callable[[], _T], mend: Callable[[], None] | None = None) -> _T:
    """What `look` returns; tried again while the NAS has trouble, after `mend`, whose own OSErrors count as one more.

    Raises AgentError, kind node, for trouble that stays, and OSError for what the path itself is. Both name the path,
    which the system does not for an open file.
    """
    with asking(path, of_source=True):
        return _patient(path, look, mend)


def _patient(path: str, look: Callable[[], _T], mend: Callable[[], None] | None) -> _T:
    for pause in (*PAUSES, None):
        try:
            return look()
        except OSError as error:
            if error.errno in _OF_THE_PATH:
                if not isinstance(error.filename, str | bytes):
                    error.filename = path
                raise
            if error.errno not in _PASSING or pause is None:
                raise _trouble(path, error) from error
        time.sleep(pause)
        if mend is not None:
            with suppress(OSError):
                mend()
    raise AssertionError


def _trouble(path: str, error: OSError) -> AgentError:
    passing = error.errno in _PASSING
    tries = f", {len(PAUSES) + 1} times in {sum(PAUSES):.1f} s" if passing else ""
    return AgentError(
        "the file system of the source has trouble",
        kind="node",
        where=path,
        found=f"{errno.errorcode.get(error.errno or 0, 'an error')} ({error.strerror}){tries}",
        wanted="a file system that answers",
        next="look at the mount and at the NAS, then run again: it goes on where it stopped",
    )


def link(path: str) -> str:
    """The text of a symbolic link, "" when something else is there. Raises FileNotFoundError when nothing is."""
    try:
        return _text(path)
    except FileNotFoundError:
        if os.path.basename(path) not in names(os.path.dirname(path)):
            raise
        return _text(path)  # it was not there a while ago, which NFS remembers; the list of the folder made it look


def target(link: str, text: str) -> str:
    """Where a link leads, one hop of it: what `text` names may be a link again. The folders on the way are followed as
    the kernel does, for `..` behind a linked folder is not the folder that stands before it in the text.

    Raises FileNotFoundError or NotADirectoryError when there is no such way.
    """
    folder, name = os.path.split(os.path.join(os.path.dirname(link), text))
    if name in ("", ".", ".."):
        return true_path(os.path.join(folder, name))
    return os.path.join(true_path(folder), name)


def _text(path: str) -> str:
    try:
        return patient(path, lambda: os.readlink(path))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return ""


def fstat(fd: int) -> os.stat_result:
    """`os.fstat`, but what the server says now. Opening a file makes an NFS client ask it; others (FUSE, NFS with
    `nocto`) answer even for a new descriptor from memory, and a file that has grown since would be cut off.
    """
    statx = _statx()
    if statx is not None:
        statx(fd)  # the kernel then has it fresh, and this python has no statx
    return os.fstat(fd)


@cache
def _statx() -> Callable[[int], Any] | None:
    try:
        import ctypes  # noqa: PLC0415 - 8 ms, and only sources are asked like this

        call = ctypes.CDLL(None).statx
    except (ImportError, OSError, AttributeError):  # no ctypes, no such call in this libc
        return None
    return lambda fd: call(fd, b"", _EMPTY_PATH | _FORCE_SYNC, _BASIC, ctypes.create_string_buffer(_STATX))


def _opened(path: str, flags: int, look: Callable[[int], _T]) -> _T:
    """What a descriptor of the path says that is opened for it."""

    def opened() -> _T:
        fd = os.open(path, flags)
        try:
            return look(fd)
        finally:
            os.close(fd)

    return patient(path, opened)


def names(folder: str) -> list[str]:
    """What is in a folder, sorted; [] when there is no such folder."""
    try:
        return sorted(_opened(folder, _FOLDER, os.listdir))
    except (FileNotFoundError, NotADirectoryError):
        return []


def status(path: str) -> os.stat_result:
    """What an open descriptor says of a path, the last link on the way followed. Raises OSError; ENXIO for a socket."""
    return _opened(path, _FILE, fstat)


def is_folder(path: str) -> bool:
    """True when a folder can be opened there."""
    return folder_id(path) is not None


def folder_id(path: str) -> tuple[int, int] | None:
    """Which folder that is (device, inode), however it is reached: links, bind mounts. None when there is none."""
    try:
        state = _opened(path, _FOLDER, os.fstat)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state.st_dev, state.st_ino


def not_there(what: str, path: str) -> AgentError:
    """The error for a folder to stage from that is not there: how much of the way to it is, and what to look at."""
    near = path
    while not os.path.exists(near):
        near = os.path.dirname(near)
    if os.path.isdir(near):
        found, wanted = f"{near} is the last of it that is there", f"a folder {path} on this node"
        mend = f"on that node, findmnt -T {near} tells what is mounted there: mount the NAS, or {_CORRECT}"
    else:
        found, wanted = "a file" if near == path else f"{near} is a file", "a folder"
        mend = f"{_CORRECT}; the folder with that file is {os.path.dirname(near)}"
    return config_error(what, where=path, found=found, wanted=wanted, next=mend)


def empty(what: str, path: str, wanted: str) -> AgentError:
    """The error for a folder to stage from that is empty: most often something is to be mounted there."""
    mend = f"is it mounted? on that node, findmnt -T {path} tells: mount the NAS, or {_CORRECT}"
    return config_error(what, where=path, found="an empty folder", wanted=wanted, next=mend)


def way_up(path: str) -> list[tuple[int, int]]:
    """Which folders an existing folder is in, itself first, the root last."""
    folders: list[tuple[int, int]] = []
    fd = os.open(path, _FOLDER)
    try:
        while True:
            here = os.fstat(fd)
            if folders and folders[-1] == (here.st_dev, here.st_ino):
                return folders
            folders.append((here.st_dev, here.st_ino))
            above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = above
    finally:
        os.close(fd)


def place(folder: str) -> tuple[str, str] | None:
    """Where an existing folder is in its file system: (device, path from that one's own root). The same for each bind
    mount of it. None when the kernel does not say.
    """
    fd = os.open(folder, _FOLDER)
    try:
        here = os.readlink(f"/proc/self/fd/{fd}")
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            mount = next((line.split()[1] for line in file if line.startswith("mnt_id:")), "")
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            fields = next((line.split(" ", 5) for line in file if line.startswith(f"{mount} ")), None)
    except OSError:
        return None
    finally:
        os.close(fd)
    if fields is None:
        return None
    device, root, point = fields[2], *(_OCTAL.sub(lambda m: chr(int(m[1], 8)), text) for text in fields[3:5])
    if here != point and not here.startswith(f"{point.rstrip('/')}/"):
        return None  # mounted over, or of another root
    return device, os.path.normpath(f"{root}/{here[len(point) :]}").replace("//", "/")


def true_path(folder: str) -> str:
    """Where a folder is when every link on the way to it is followed, as the kernel does. Raises OSError.

    For a folder only: what links *in* it mean depends on where it really is. Files keep the names they are linked by.
    """
    return _opened(folder, _FOLDER, lambda fd: os.readlink(f"/proc/self/fd/{fd}"))


def small(path: str, limit: int) -> bytes | None:
    """All of a small file, None when it has more than `limit` bytes. Raises OSError when there is none."""
    data = patient(path, lambda: b"".join(blocks(path, limit + 1, limit + 1)))
    return data if len(data) <= limit else None


def blocks(path: str, size: int, limit: int = 1 << 62) -> Iterator[bytes]:
    """A file in blocks of `size` bytes, no more than `limit`; nothing of it stays in the page cache."""
    fd = os.open(path, _FILE)
    try:
        while limit > 0 and (block := os.read(fd, min(size, limit))):
            yield block
            limit -= len(block)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
