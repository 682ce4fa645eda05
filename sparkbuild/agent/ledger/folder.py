"""The folder that is staged into: who may change it, how much room its disk has, and what is ours in it."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.ledger.ledger import OURS, safe_name
from sparkbuild.agent.wire.protocol import AgentError

OUT_OF_PLACE = "what sparkbuild keeps beside staged data has something else in its place"
_LEFTOVERS = (".part", ".chunks", ".tmp", ".link")


@contextmanager
def locked(dst: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Be the only one who changes the folder; it is made when it is not there. Waits for another one to end. Whoever
    fails before anything was written leaves neither the lock nor the folders that were made for it.

    flock on `.sparkbuild/lock`. `waiting` is told once who holds it. After the wait the file is looked at again:
    somebody may have removed the whole folder, and a lock on a removed file guards nothing.
    """
    ours, made = f"{dst}/{OURS}", list[str]()
    while True:
        made += _make(ours, dst)
        if os.path.islink(ours):
            raise misplaced(OUT_OF_PLACE, ours, "a symbolic link", "a folder, or nothing yet")
        try:
            fd = os.open(f"{ours}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError:  # another one has just removed the folder
            continue
        except OSError:
            _unmake(made)
            raise
        try:
            _wait(fd, waiting)
            if _is_still(fd, f"{ours}/lock"):
                since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"pid {os.getpid()} since {since}\n".encode(), 0)
                try:
                    yield
                except BaseException:
                    if _is_still(fd, f"{ours}/lock") and not begun(dst):
                        os.unlink(f"{ours}/lock")
                        _unmake([ours, *made])
                    raise
                return
        finally:
            os.close(fd)


def begun(dst: str) -> bool:
    """True when something of ours is in the folder, beside the lock and whose it is: what is staged, or was begun to
    be.
    """
    try:
        return any(name not in ("lock", "owner.json") for name in os.listdir(f"{dst}/{OURS}"))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _make(ours: str, dst: str) -> list[str]:
    """Make our folder, and those that it is in; those that were not there, innermost first."""
    missing, path = [], ours
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        os.makedirs(ours, exist_ok=True)
    except OSError as error:
        _unmake(missing)
        if isinstance(error, FileNotFoundError) and in_the_way(dst) is None:
            return []  # one of them was removed meanwhile, by another one who failed
        if isinstance(error, FileExistsError | NotADirectoryError | FileNotFoundError):
            raise in_the_way(dst) or error from None
        raise
    return missing


def _unmake(folders: Iterable[str]) -> None:
    """Remove those that are empty."""
    for path in folders:
        with suppress(OSError):
            os.rmdir(path)


def in_the_way(dst: str) -> AgentError | None:
    """Why nothing can be staged there: something on the way to the folder, or in its place, is no folder."""
    path = dst
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if os.path.isdir(path):
        return None
    return AgentError(
        "what is to be staged into cannot be a folder",
        kind="config",
        where=dst,
        found=f"{path} is a file, or a link to none",
        wanted="a folder, or nothing yet",
        next="correct `dst` of the staging block, or move that away",
    )


def busy(dst: str) -> str:
    """Who is changing the folder now, "" when nobody is."""
    try:
        fd = os.open(f"{dst}/{OURS}/lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    finally:
        os.close(fd)
    return ""


def _holder(fd: int) -> str:
    return os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"


def _wait(fd: int, waiting: Callable[[str], None]) -> None:
    tries = 0
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tries += 1
            if tries == 2:  # at the first, it may be one who only looks (`busy`): the name in the file is an old one
                waiting(_holder(fd))
            time.sleep(0.1)


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def room(dst: str) -> int:
    """Bytes that may still be written to the folder's file system."""
    found = os.statvfs(dst)
    return found.f_bavail * found.f_frsize


def clear_leftovers(dst: str, keep: set[str]) -> None:
    """Remove what killed runs left in our folder, but not the files named in `keep`."""
    for name in os.listdir(f"{dst}/{OURS}"):
        if name.endswith(_LEFTOVERS) and name not in keep:
            os.unlink(f"{dst}/{OURS}/{name}")


def leftovers(dst: str, keep: set[str]) -> int:
    """Bytes on the disk that `clear_leftovers` gives back."""
    with os.scandir(f"{dst}/{OURS}") as entries:
        wanted = [entry for entry in entries if entry.name.endswith(_LEFTOVERS) and entry.name not in keep]
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in wanted)


def place(dst: str, name: str) -> str:
    """The path of a file of the folder, its parent folders made. Raises AgentError when it would be outside of it, or
    when something that is no plain file stands there.
    """
    if not safe_name(name):
        raise AgentError("a name that leaves the folder", kind="config", where=dst, found=repr(name))
    blocked = in_its_place(dst, name)
    if blocked is not None:
        raise blocked
    path = dst
    for step in name.split("/")[:-1]:
        path = f"{path}/{step}"
        if not os.path.lexists(path):
            os.mkdir(path)
    return f"{dst}/{name}"


def in_its_place(dst: str, name: str) -> AgentError | None:
    """Why a file of that name cannot be in the folder: a folder stands there, or what is no folder is on the way."""
    path, (*steps, last) = dst, name.split("/")
    for step in steps:
        path = f"{path}/{step}"
        if not os.path.lexists(path):
            return None
        if not os.path.isdir(path) or os.path.islink(path):
            found = "a symbolic link" if os.path.islink(path) else "a file"
            return misplaced("a folder is wanted where something else is", path, found, "a folder, or nothing yet")
    path = f"{path}/{last}"
    if os.path.isdir(path) and not os.path.islink(path):
        return misplaced("a file is wanted where a folder is", path, "a folder", "a file, or nothing yet")
    return None


def misplaced(what: str, where: str, found: str, wanted: str) -> AgentError:
    """The error for something that stands where another kind of thing belongs."""
    return AgentError(what, kind="config", where=where, found=found, wanted=wanted, next="move it away")


def holds(dst: str, name: str) -> bool:
    """True when a file of that name is really in the folder: a link on the way to it may lead anywhere."""
    return not through_link(dst, name) and _is_file(f"{dst}/{name}")


def through_link(dst: str, name: str) -> bool:
    """True when a link is on the way to a name."""
    steps = name.split("/")
    return any(os.path.islink(f"{dst}/{'/'.join(steps[:count])}") for count in range(1, len(steps)))


def sweep(dst: str, names: Iterable[str]) -> None:
    """Remove the folders that are empty without these files or links, as far as they are really in the folder."""
    for above in sorted({os.path.dirname(name) for name in names}, key=len, reverse=True):
        step = above
        while step and _holds_folder(dst, step):
            try:
                os.rmdir(f"{dst}/{step}")
            except OSError:  # not empty
                break
            step = os.path.dirname(step)


def _holds_folder(dst: str, name: str) -> bool:
    """True when a folder of that name is really in the folder."""
    return not through_link(dst, f"{name}/x") and os.path.isdir(f"{dst}/{name}")


def _is_file(path: str) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def human(size: int) -> str:
    """A size on screen: decimal units, as disks and networks are sold."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
