# ruff: noqa: ARG002 - the methods' arguments are FUSE's
"""The server of one NAS mount: shows a folder, read-only, as slowly and as wrongly as its settings say.

    python -I nas_server.py JSON

It needs mfusepy and else only the standard library. One process per mount, so that each node has the caches of a
client of its own; bandwidth, faults and the log of reads are shared through the NAS's folder.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import struct
import sys
import threading
import time
from typing import Any

import mfusepy  # type: ignore[import-untyped]

STAT = ("st_atime_ns", "st_ctime_ns", "st_mtime_ns", "st_gid", "st_ino", "st_mode", "st_nlink", "st_size", "st_uid",
        "st_blocks", "st_blksize", "st_rdev")  # fmt: skip
STATFS = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_frsize", "f_namemax")
NEWNS = 0x20000


class Handle:
    """An open file: what is read from, and the faults it has met."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.met: set[int] = set()


class Server(mfusepy.Operations):  # type: ignore[misc]
    """Everything is reached from file descriptors that were opened before the node's namespace was entered."""

    use_ns = True

    def __init__(self, source: int, control: int, node: str, direct_io: bool) -> None:
        self.source = source
        self.control = control
        self.node = node
        self.direct_io = direct_io
        self.clock = os.open("clock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=control)
        self.log = os.open("reads.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600, dir_fd=control)
        self.lock = threading.Lock()
        self.handles: dict[int, Handle] = {}
        self.seen: tuple[int, int] = (0, 0)
        self.settings: dict[str, Any] = {}

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        if config_3 is not None:
            config_3.use_ino = 1
            config_3.direct_io = int(self.direct_io)

    # -- how bad it is -------------------------------------------------------------------------------------------

    def wait(self) -> dict[str, Any]:
        """Pay the latency of a call; returns the settings as they are now."""
        with self.lock:
            now = os.stat("settings.json", dir_fd=self.control)
            if (now.st_ino, now.st_mtime_ns) != self.seen:  # it is replaced, never written to
                with open(os.open("settings.json", os.O_RDONLY, dir_fd=self.control), encoding="utf-8") as file:
                    self.settings = json.load(file)
                self.seen = (now.st_ino, now.st_mtime_ns)
            settings = self.settings
        if settings["latency_ms"]:
            time.sleep(settings["latency_ms"] / 1000)
        return settings

    def pay(self, settings: dict[str, Any], count: int) -> None:
        """Wait until `count` bytes may pass. The clock file says until when the line is busy, for all mounts."""
        if not settings["mb_per_s"]:
            return
        with self.lock:  # threads of one process share the file lock
            fcntl.flock(self.clock, fcntl.LOCK_EX)
            try:
                held = os.pread(self.clock, 8, 0)
                free_at = struct.unpack("d", held)[0] if held else 0.0
                until = max(time.monotonic(), free_at) + count / (settings["mb_per_s"] * 1e6)
                os.pwrite(self.clock, struct.pack("d", until), 0)
            finally:
                fcntl.flock(self.clock, fcntl.LOCK_UN)
        time.sleep(max(0.0, until - time.monotonic()))

    def fault(self, settings: dict[str, Any], handle: Handle, path: str, offset: int, size: int) -> dict[str, Any]:
        """The first fault that this read meets, or nothing.

        A file handle that met one meets it again at the same byte, without using it up further: the kernel asks twice
        for a page that it could not read ahead, and would hide from the reader a fault that is told once.
        """
        for one in settings["faults"]:
            hit = one["path"] == path and offset <= one["at"] < offset + size
            if hit and (one["id"] in handle.met or self.use_up(one)):
                if not self.direct_io:
                    handle.met.add(one["id"])
                return dict(one)
        return {}

    def use_up(self, fault: dict[str, Any]) -> bool:
        if fault["times"] is None:
            return True
        for number in range(fault["times"]):  # each file is one time; of all servers, one can remove it
            try:
                os.unlink(f"fault-{fault['id']}-{number}", dir_fd=self.control)
            except FileNotFoundError:
                continue
            return True
        return False

    # -- the file system -----------------------------------------------------------------------------------------

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        self.wait()
        handle = self.handles.get(fh) if fh is not None else None
        found = os.fstat(handle.fd) if handle else os.stat(_below(path), dir_fd=self.source, follow_symlinks=False)
        return {name.removesuffix("_ns"): getattr(found, name) for name in STAT}

    def readlink(self, path: str) -> str:
        self.wait()
        return os.readlink(_below(path), dir_fd=self.source)

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        self.wait()
        folder = os.open(_below(path), os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.source)
        try:
            with os.scandir(folder) as entries:
                found = [(one.name, one.inode()) for one in entries]
        finally:
            os.close(folder)
        # An entry without an inode number would be skipped by readdir(3).
        return [(name, {"st_ino": number}, 0) for name, number in [(".", 1), ("..", 1), *found]]

    def statfs(self, path: str) -> dict[str, int]:
        self.wait()
        found = os.fstatvfs(self.source)
        return {name: getattr(found, name) for name in STATFS}

    def open(self, path: str, flags: int) -> int:
        self.wait()
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise mfusepy.FuseOSError(errno.EROFS)
        fd = os.open(_below(path), os.O_RDONLY, dir_fd=self.source)
        with self.lock:
            self.handles[fd] = Handle(fd)
        return fd

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        settings = self.wait()
        fault = self.fault(settings, self.handles[fh], path, offset, size)
        kind = fault.get("kind", "")
        if kind in {"EIO", "ESTALE"}:
            raise mfusepy.FuseOSError(getattr(errno, kind))
        data = os.pread(fh, size, offset)
        if kind == "short":
            data = data[: fault["at"] - offset]
        elif kind == "flip" and len(data) > fault["at"] - offset:
            place = fault["at"] - offset
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        self.pay(settings, len(data))
        os.write(self.log, json.dumps([self.node, path, offset, len(data)]).encode() + b"\n")
        return data

    def release(self, path: str, fh: int) -> int:
        with self.lock:
            del self.handles[fh]
        os.close(fh)
        return 0


def _below(path: str) -> str:
    return path.lstrip("/") or "."


def main(given: str) -> None:
    how = json.loads(given)
    source = os.open(how["source"], os.O_RDONLY | os.O_DIRECTORY)
    control = os.open(how["control"], os.O_RDONLY | os.O_DIRECTORY)
    server = Server(source, control, how["node"], how["direct_io"])
    if how["namespace"]:
        # All imports are done by now: what the machine has under /tmp or /root is not there any more. The new
        # namespace is the node's, which is where the mount is to appear.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(os.open(how["namespace"], os.O_RDONLY), NEWNS):
            raise OSError(ctypes.get_errno(), "setns")
    os.chdir("/")
    mfusepy.FUSE(
        server,
        how["at"],
        foreground=True,
        allow_other=True,
        default_permissions=True,
        ro=True,
        fsname=how["control"],
        subtype="sparkbuild-nas",
        **how["timeouts"],
    )


if __name__ == "__main__":
    main(sys.argv[1])
