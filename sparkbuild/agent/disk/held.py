"""A folder held by a descriptor: everything below it is reached from there, step by step, and never through a link.

Whoever may write to a folder on a path can put a link there between a look and an act, and so may somebody who moved a
sub-folder to a bigger disk. What follows such a link removes or overwrites what nobody named. So what is removed,
renamed or opened for writing on a node is named by a folder and a name in it, and the steps of the name are folders of
the same file system, or the call fails. The way to the held folder itself may have links: that is how its owner chose
to say where it is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO

from sparkbuild.agent.wire import unfinished

_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER, FILE = 0o755, 0o644  # modes of what others may read: an engine's container often runs as another user


def is_path(text: object) -> bool:
    """Whether a system call would take this for a path at all: records of others have NULs and lone surrogates."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


class Held:
    """A folder; names are relative to it, with slashes, without `..`; "" is the folder itself.

    Errors are OSError with the full path: NotADirectoryError where a step is a link or a file, EXDEV where another file
    system is mounted on it. `made` folders and files have the mode that is asked for, whatever the umask is.
    """

    __slots__ = ("_device", "fd", "path")

    def __init__(self, path: str, fd: int = -1) -> None:
        self.path = path.rstrip("/") or "/"
        self.fd = fd if fd >= 0 else os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self.fd).st_dev

    def __enter__(self) -> Held:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def at(self, name: str) -> str:
        """The full path of a name, for messages, and for programs that are told a path."""
        return f"{self.path}/{name}" if name else self.path

    # -- looking -------------------------------------------------------------------------------------------------

    def lstat(self, name: str) -> os.stat_result | None:
        """What stands under a name, None when nothing does, or a step to it is no folder of this one."""
        try:
            with self._above(name) as (parent, last):
                return os.lstat(last, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EXDEV):
                return None
            raise

    def readlink(self, name: str) -> str:
        """The text of a link."""
        with self._above(name) as (parent, last):
            return os.readlink(last, dir_fd=parent)

    def listdir(self, name: str = "") -> list[str]:
        """The names in a folder, sorted."""
        with self._into(name) as fd:
            return sorted(os.listdir(fd))

    def folder(self, name: str) -> Held:
        """A folder in this one, held by itself."""
        with self._into(name) as fd:
            return Held(self.at(name), os.dup(fd))

    # -- making --------------------------------------------------------------------------------------------------

    def open(self, name: str, flags: int, mode: int = FILE) -> int:
        """A file as os.open opens it; a link in its place is an error. The mode is less the umask."""
        with self._above(name) as (parent, last):
            return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)

    def create(self, name: str, mode: int = FILE) -> int:
        """A new file, open for writing; what had that name is removed, and nothing is written through it."""
        with self._above(name) as (parent, last):
            with suppress(FileNotFoundError):
                os.unlink(last, dir_fd=parent)
            fd = os.open(last, _NEW, mode, dir_fd=parent)
            set_mode(fd, mode)
            return fd

    def replace(self, name: str, write: Callable[[IO[bytes]], object], mode: int = FILE, *, flush: bool = True) -> None:
        """Have a file hold what `write` writes, all of it or what it held before; on the disk when this returns, unless
        it is not to be flushed. What a writer left in that folder that was killed meanwhile is removed.
        """
        temporary = unfinished.name_for(name)
        lock = -1
        try:
            with os.fdopen(self._unfinished(temporary, mode), "wb") as file:
                lock = os.dup(file.fileno())  # held until it has its name
                write(file)
                file.flush()
                self.give(file.fileno())
                if flush:
                    os.fsync(file.fileno())
            self.rename(temporary, name)
        except BaseException as error:
            with suppress(OSError):  # what went wrong first is to be told
                self.unlink(temporary)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.at(name)  # writing names no file, and another disk would be called full
            raise
        finally:
            if lock >= 0:
                os.close(lock)
        with self._into(os.path.dirname(name)) as folder:
            unfinished.sweep(folder)
            if flush:
                os.fsync(folder)

    def _unfinished(self, name: str, mode: int) -> int:
        """A new file whose writer is known to be at work."""
        while not unfinished.hold(fd := self.create(name, mode)):
            os.close(fd)
        return fd

    def makedirs(self, name: str, mode: int = FOLDER) -> list[str]:
        """Make a folder and those above it, as far as they are missing; which were, outermost first."""
        missing = []
        steps = name.split("/")
        for count in range(1, len(steps) + 1):
            with self._above("/".join(steps[:count])) as (parent, last):
                try:
                    os.mkdir(last, mode, dir_fd=parent)
                except FileExistsError:
                    continue
                with _closing(os.open(last, _INTO, dir_fd=parent)) as fd:
                    set_mode(fd, mode)
                missing.append("/".join(steps[:count]))
        with self._into(name):
            return missing

    def give(self, fd: int) -> None:
        """Root working in another user's store leaves files that this user can still read and replace."""
        if os.geteuid() == 0:
            state = os.fstat(self.fd)
            os.fchown(fd, state.st_uid, state.st_gid)

    def symlink(self, text: str, name: str) -> None:
        """Make a link."""
        with self._above(name) as (parent, last):
            os.symlink(text, last, dir_fd=parent)

    def link(self, path: str, name: str) -> None:
        """Give the file at a path, which is no link, another name."""
        with self._above(name) as (parent, last):
            os.link(path, last, dst_dir_fd=parent, follow_symlinks=False)

    def chmod(self, name: str, mode: int) -> None:
        """Set the mode of a file or folder."""
        with _closing(self.open(name, os.O_RDONLY | os.O_NONBLOCK) if name else os.dup(self.fd)) as fd:
            set_mode(fd, mode)

    def take_back(self, name: str) -> None:
        """Give a file the owner and the mode that a new one gets here; nothing when it is no file."""
        with _closing(self.open(name, os.O_PATH)) as fd:  # its mode may keep its own owner from opening it
            if stat.S_ISREG(os.fstat(fd).st_mode):
                state, path = os.fstat(self.fd), f"/proc/self/fd/{fd}"
                if os.geteuid() == 0:
                    os.chown(path, state.st_uid, state.st_gid)
                os.chmod(path, FILE)

    # -- moving and removing -------------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        """Give something another name, in place of what has it."""
        with self._above(old) as (above, one), self._above(new) as (parent, other):
            os.rename(one, other, src_dir_fd=above, dst_dir_fd=parent)

    def unlink(self, name: str) -> bool:
        """Remove a file or link; False when nothing has that name."""
        try:
            with self._above(name) as (parent, last):
                os.unlink(last, dir_fd=parent)
        except FileNotFoundError:
            return False
        return True

    def rmdir(self, name: str) -> bool:
        """Remove an empty folder; False when it is not empty, or no folder of this one."""
        try:
            with self._above(name) as (parent, last):
                os.rmdir(last, dir_fd=parent)
        except OSError:
            return False
        return True

    def rmtree(self, name: str) -> None:
        """Remove what has that name, and all in it, as far as that can be; a link goes, what it leads to stays."""
        with suppress(OSError), self._above(name) as (parent, last):
            state = os.lstat(last, dir_fd=parent)
            if not stat.S_ISDIR(state.st_mode):
                os.unlink(last, dir_fd=parent)
            elif state.st_dev == self._device:
                _remove_tree(parent, last, self._device)

    def flush(self, name: str = "") -> None:
        """Make renames and removals in a folder survive a power cut."""
        with self._into(name) as fd:
            os.fsync(fd)

    # -- the way -------------------------------------------------------------------------------------------------

    @contextmanager
    def _into(self, name: str) -> Iterator[int]:
        steps = name.split("/") if name else []
        if any(step in ("", ".", "..") or not is_path(step) for step in steps):
            raise ValueError(f"no name in a folder: {name!r}")
        fd = os.dup(self.fd)
        try:
            try:
                for step in steps:
                    inner = os.open(step, _INTO, dir_fd=fd)
                    os.close(fd)
                    fd = inner
                    _stay(fd, self._device)
            except OSError as error:
                number = errno.ENOTDIR if error.errno == errno.ELOOP else error.errno  # by kernel and file system
                raise OSError(number, os.strerror(number or 0), self.at(name)) from None
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _above(self, name: str) -> Iterator[tuple[int, str]]:
        """The folder that something is in, and its name there."""
        above, _, last = name.rpartition("/")
        if last in ("", ".", "..") or not is_path(last):
            raise ValueError(f"no name in a folder: {name!r}")
        with self._into(above) as fd:
            try:
                yield fd, last
            except OSError as error:
                if last in (error.filename, error.filename2):
                    raise OSError(error.errno, error.strerror, self.at(name)) from None
                raise


def set_mode(fd: int, mode: int) -> None:
    """Set a mode that the umask may have narrowed. A file system without modes (exFAT, SMB) holds what others may read
    all the same, and nothing that they may not.
    """
    try:
        os.fchmod(fd, mode)
    except OSError:
        if not mode & 0o077:
            raise


def _stay(fd: int, device: int) -> None:
    if os.fstat(fd).st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _remove_tree(parent: int, name: str, device: int) -> None:
    """Rm -rf that crosses into no mount: shutil's does."""
    with _closing(os.open(name, _INTO, dir_fd=parent)) as fd:
        if os.fstat(fd).st_dev != device:
            return
        for inner in os.listdir(fd):
            with suppress(OSError):  # as much as can be
                if stat.S_ISDIR(os.lstat(inner, dir_fd=fd).st_mode):
                    _remove_tree(fd, inner, device)
                else:
                    os.unlink(inner, dir_fd=fd)
    os.rmdir(name, dir_fd=parent)


# -- one act on a path of ours -----------------------------------------------------------------------------------
#
# For work folders below the store: the last step of the path is never followed, and a tree is left where a mount is.


def remove(path: str) -> bool:
    """Remove a file or link; False when there is none."""
    above, _, name = path.rpartition("/")
    with Held(above) as held:
        return held.unlink(name)


def remove_tree(path: str) -> None:
    """Remove what is there, and all in it, as far as that can be."""
    above, _, name = path.rstrip("/").rpartition("/")
    with suppress(FileNotFoundError, NotADirectoryError), Held(above) as held:
        held.rmtree(name)


def rename(old: str, new: str) -> None:
    """Give something another name, in place of what has it."""
    (above, _, one), (parent, _, other) = old.rpartition("/"), new.rpartition("/")
    with Held(above) as held, Held(parent) as into:
        os.rename(one, other, src_dir_fd=held.fd, dst_dir_fd=into.fd)


def created(path: str, mode: int = FILE) -> IO[bytes]:
    """A new file, open for writing; what had that name is removed."""
    above, _, name = path.rpartition("/")
    with Held(above) as held:
        return os.fdopen(held.create(name, mode), "wb")


def locking(path: str) -> int:
    """A file to lock, made when it is not there."""
    above, _, name = path.rpartition("/")
    with Held(above) as held:
        return held.open(name, os.O_RDWR | os.O_CREAT)
