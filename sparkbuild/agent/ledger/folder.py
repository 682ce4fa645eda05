"""The folder that is staged into: who may change it, how much room its disk has, and what is ours in it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.held import FOLDER, Held
from sparkbuild.agent.disk.lock import holder, is_still, take, try_take
from sparkbuild.agent.ledger import way
from sparkbuild.agent.ledger.ledger import safe_name
from sparkbuild.agent.wire.layout import LOCK, OURS, OWNER_FILE
from sparkbuild.agent.wire.protocol import AgentError

OUT_OF_PLACE = "what sparkbuild keeps beside staged data has something else in its place"
_LOCK = f"{OURS}/{LOCK}"
_WAITS = 3.0  # seconds for which a note of `waiting` holds
_LEFTOVERS = (".part", ".chunks", ".tmp", ".link")


@contextmanager
def locked(dst: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Be the only one who changes the folder; it is made when it is not there. Waits for another one to end. Whoever
    fails before anything was written leaves neither the lock nor the folders that were made for it.

    flock on `.sparkbuild/lock`. `waiting` is told once who holds it. After the wait the file is looked at again:
    somebody may have removed the whole folder, and a lock on a removed file guards nothing.
    """
    ours, new = f"{dst}/{OURS}", list[str]()
    while True:
        new += _make(ours, dst)
        if os.path.islink(ours):
            raise misplaced(OUT_OF_PLACE, ours, "a symbolic link", "a folder, or nothing yet")
        try:
            with Held(dst) as held:
                fd = held.open(_LOCK, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # another one has just removed the folder
            continue
        except OSError:
            _unmake(new)
            raise
        try:
            take(fd, waiting)
            if is_still(fd, f"{ours}/{LOCK}"):
                since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"pid {os.getpid()} since {since}\n".encode(), 0)
                try:
                    yield
                except BaseException:
                    if is_still(fd, f"{ours}/{LOCK}") and not begun(dst):
                        with Held(dst) as held:
                            held.unlink(_LOCK)
                        _unmake([ours, *new])
                    raise
                return
        finally:
            os.close(fd)


def begun(dst: str) -> bool:
    """True when something of ours is in the folder, beside the lock and whose it is: what is staged, or was begun to
    be.
    """
    try:
        return any(name not in (LOCK, OWNER_FILE) for name in os.listdir(f"{dst}/{OURS}"))
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
        with Held(dst) as held:  # a container may run as another user, whatever our umask
            for name in ("", OURS):
                if held.at(name) in missing:
                    held.chmod(name, FOLDER)
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
        with questions.asking(dst):
            fd = os.open(f"{dst}/{_LOCK}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return "" if try_take(fd, shared=True) else holder(fd)
    finally:
        os.close(fd)


def waiting(dst: str) -> None:
    """Note that who changes the folder waits for another node, as it must each second while it does: the time of its
    lock is set to when the note ends.
    """
    until = time.time() + _WAITS
    with suppress(OSError):
        os.utime(f"{dst}/{_LOCK}", (until, until), follow_symlinks=False)


def waits(dst: str) -> bool:
    """Whether who changes the folder waits for another node now."""
    try:
        return 0 < os.lstat(f"{dst}/{_LOCK}").st_mtime - time.time() <= _WAITS
    except OSError:
        return False


def room(dst: str) -> int:
    """Bytes that may still be written to the folder's file system."""
    disk = os.statvfs(dst)
    return disk.f_bavail * disk.f_frsize


def clear_leftovers(dst: str, keep: set[str]) -> None:
    """Remove what killed runs left in our folder, but not the files named in `keep`."""
    with Held(dst) as held:
        for name in held.listdir(OURS):
            if name.endswith(_LEFTOVERS) and name not in keep:
                held.unlink(f"{OURS}/{name}")


def leftovers(dst: str, keep: set[str]) -> int:
    """Bytes on the disk that `clear_leftovers` gives back."""
    with os.scandir(f"{dst}/{OURS}") as entries:
        wanted = [entry for entry in entries if entry.name.endswith(_LEFTOVERS) and entry.name not in keep]
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in wanted)


def place(held: Held, name: str) -> None:
    """Make the folders that a file of a held folder is to be in. Raises AgentError when it would be outside of it, or
    when something that is no plain file stands there.
    """
    if not safe_name(name):
        raise AgentError("a name that leaves the folder", kind="config", where=held.path, found=repr(name))
    above = os.path.dirname(name)
    try:
        if above:
            held.makedirs(above)
    except OSError:
        blocked = in_the_place(held.path, [name], ())
        if blocked is not None:
            raise blocked from None
        raise
    status = held.lstat(name)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise _folder_there(held.at(name))


def in_the_place(dst: str, names: Collection[str], ours: Collection[str]) -> AgentError | None:
    """Why files of these names cannot be in the folder: a folder stands there, or what is no folder of this one is on
    the way. What goes by itself since it was staged (`ours`, and folders of these) is no reason.
    """
    detours = way.detours(dst, names)
    for step, detour in detours.items():
        if step not in ours:
            return way.refused(dst, step, detour)
    known = set(way.steps(ours))
    for name in names:
        if name in known or way.behind(name, detours):
            continue
        path = f"{dst}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            return _folder_there(path)
    return None


def _folder_there(path: str) -> AgentError:
    return misplaced("a file is wanted where a folder is", path, "a folder", "a file, or nothing yet")


def misplaced(what: str, where: str, found: str, wanted: str) -> AgentError:
    """The error for something that stands where another kind of thing belongs."""
    return AgentError(what, kind="config", where=where, found=found, wanted=wanted, next="move it away")


def holds(dst: str, name: str) -> bool:
    """True when a file of that name is really in the folder: a link on the way to it may lead anywhere."""
    try:
        with Held(dst) as held:
            status = held.lstat(name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return status is not None and not stat.S_ISDIR(status.st_mode)


def through_link(dst: str, name: str) -> bool:
    """True when a link is on the way to a name."""
    steps = name.split("/")
    return any(os.path.islink(f"{dst}/{'/'.join(steps[:count])}") for count in range(1, len(steps)))


def sweep(dst: str, names: Iterable[str]) -> None:
    """Remove the folders that are empty without these files or links, as far as they are really in the folder."""
    with Held(dst) as held:
        for step in reversed(way.steps(names)):
            held.rmdir(step)
