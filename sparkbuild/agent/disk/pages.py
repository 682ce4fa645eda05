"""Big files without a trace in the page cache: on GB10 machines the page cache is the GPU's memory.

Linux 6.14 and newer take RWF_DONTCACHE per read and write, and start the write-back at once. Where the kernel or the
file system refuses it (tmpfs, btrfs, NFS), the older way: start the write-back, and drop pages once they are clean.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

DONTCACHE = 0x80  # RWF_DONTCACHE, include/uapi/linux/fs.h; python has no name for it yet
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: start the write-back, wait for nothing
_PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_BEHIND = 32 << 20  # bytes behind the writer that are clean by now, most likely
_REFUSED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Pages:
    """One open file, read and written at offsets: it has no position, so several threads may share it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._read_flags = self._write_flags = DONTCACHE

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`; returns the bytes read, fewer than asked for only at the end of the file."""
        done = 0
        while done < len(view):
            flags = self._read_flags  # those of this call: another thread may find out about them meanwhile
            try:
                got = os.preadv(self.fd, [view[done:]], offset + done, flags)
            except OSError as error:
                if not flags or error.errno not in _REFUSED:
                    raise
                self._read_flags = 0
                continue
            if not got:
                break
            done += got
        if not self._read_flags:
            os.posix_fadvise(self.fd, offset, done, os.POSIX_FADV_DONTNEED)
        return done

    def write(self, view: memoryview, offset: int) -> None:
        """Write all of `view` at `offset`, and have the kernel begin to store it."""
        done = 0
        while done < len(view):
            flags = self._write_flags
            try:
                done += os.pwritev(self.fd, [view[done:]], offset + done, flags)
            except OSError as error:
                if not flags or error.errno not in _REFUSED:
                    raise
                self._write_flags = 0
        if not self._write_flags:
            _start_writing(self.fd, offset, done)
            if offset >= _BEHIND:
                os.posix_fadvise(self.fd, offset - _BEHIND, done, os.POSIX_FADV_DONTNEED)

    def settle(self) -> None:
        """Everything written is on the disk when this returns, and nothing of it is left in memory."""
        os.fdatasync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)


def reserve(fd: int, size: int, ranges: Iterable[tuple[int, int]]) -> None:
    """Make the file `size` bytes long with the blocks of these ranges allocated, so that a full disk is found before
    the copy.

    Raises OSError ENOSPC. By ctypes: os.posix_fallocate falls back to writing a byte into every block where the file
    system cannot allocate, which takes longer than the copy.
    """
    os.ftruncate(fd, size)
    libc, wide, last_error = _libc()
    for first, end in ranges if libc is not None else ():
        if libc.fallocate(fd, 0, wide(first), wide(end - first)):
            code = last_error()
            if code not in _REFUSED:
                raise OSError(code, os.strerror(code))
            return


def data_in(fd: int, first: int, end: int) -> Iterator[tuple[int, int]]:
    """What of a range may be anything but zeros, by SEEK_DATA; all of it where the file system has no holes."""
    while first < end:
        try:
            first = os.lseek(fd, first, os.SEEK_DATA)
            after = min(end, os.lseek(fd, first, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here to the end
                return
            if error.errno not in _REFUSED:
                raise
            after = end
        if first < end:
            yield first, after
        first = after


def make_hole(fd: int, first: int, end: int) -> None:
    """Make zeros of a range, and give its blocks back where the file system can. The size stays."""
    libc, wide, _ = _libc()
    if libc is not None and not libc.fallocate(fd, _PUNCH, wide(first), wide(end - first)):
        return
    zeros = bytes(min(1 << 20, end - first))
    for start in range(first, end, len(zeros)):
        os.pwrite(fd, zeros[: end - start], start)


def _start_writing(fd: int, offset: int, size: int) -> None:
    libc, wide, _ = _libc()
    if libc is not None:
        libc.sync_file_range(fd, wide(offset), wide(size), _WRITE)  # a hint: its errors come back in fdatasync


@cache
def _libc() -> tuple[Any, Any, Any]:
    try:
        import ctypes  # noqa: PLC0415 - 8 ms, and only writing needs it
    except ImportError:  # a python built without libffi: slower, and a full disk is found while copying
        return None, None, None
    return ctypes.CDLL(None, use_errno=True), ctypes.c_int64, ctypes.get_errno
