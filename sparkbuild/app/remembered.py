"""What was read of a workspace, kept for the next run: a hint, which may be deleted at any time.

It holds while every file and folder that was looked at is as it was (workspace.files.looked), and so is the code that
read them. Pickled, since goals hold the types of their domains: a file is believed that this user alone can write.
"""

from __future__ import annotations

import os
import pickle
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Protocol

from sparkbuild.core import STATE, wholefile
from sparkbuild.workspace.files import looked
from sparkbuild.workspace.files.looked import Looked

_FORMAT = 1
_READ_BY = ("sparkbuild", "msgspec", "tomli")  # packages whose code decides what was read


class Memory(Protocol):
    """What to remember: `names` by themselves, and all of the `contents`; None: nothing."""

    names: Any
    contents: Any


class Recalled:
    """What was remembered, and still holds."""

    def __init__(self, names: Any, rest: bytes) -> None:
        self.names = names
        self._rest = rest

    def contents(self) -> Any:
        """All of it; None when it is damaged."""
        try:
            return pickle.loads(self._rest)  # noqa: S301 - see above
        except Exception:  # noqa: BLE001 - as in `recall`
            return None


def _file(root: Path) -> Path:
    return root / STATE / "read"


def recall(root: Path) -> Recalled | None:
    """What was remembered, if that still holds; else None."""
    try:
        with _file(root).open("rb") as file:
            return _load(file, root) if _is_mine(file) else None
    except Exception:  # noqa: BLE001 - damaged, of another version, or not there: whatever it is, reading anew mends it
        return None


def _load(file: BinaryIO, root: Path) -> Recalled | None:
    head = pickle.load(file)  # noqa: S301 - see above
    if head[:-2] != _made_by(root):
        return None
    code, seen = head[-2:]
    if any(_code_stamp(path) != stamp for path, stamp in code.items()):
        return None
    then = Looked()
    then.stamps, then.absent, then.unlinked = seen
    if not looked.is_unchanged(then):
        return None
    return Recalled(pickle.load(file), file.read())  # noqa: S301 - as above


def _is_mine(file: BinaryIO) -> bool:
    info = os.fstat(file.fileno())
    return info.st_uid == os.geteuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@contextmanager
def remembering(root: Path) -> Iterator[Memory]:
    """Read the workspace in the block. What it sets as contents is remembered, where there is a folder for it, and
    nothing has just been changed.
    """
    memory, began = SimpleNamespace(names=None, contents=None), time.time()
    with looked.recording() as seen:
        yield memory
    if memory.contents is None or not seen.complete or seen.newest() > began - looked.SETTLED:
        return
    path = _file(root)
    if not path.parent.is_dir():
        return  # nothing was done here yet: a look at a fresh workspace leaves nothing behind
    head = (*_made_by(root), _code(), (seen.stamps, seen.absent, seen.unlinked))
    try:
        content = b"".join(map(pickle.dumps, (head, memory.names, memory.contents)))
        wholefile.replace(path, content, mode=0o600, ours=False, flush=False)
    except (OSError, pickle.PicklingError, TypeError, RecursionError):
        return  # a full disk, a workspace of another user: it is read anew, then


def _made_by(root: Path) -> tuple[object, ...]:
    return _FORMAT, str(root), sys.version


def _code() -> dict[str, tuple[int, int]]:
    """The files of all code that was loaded so far, as Python itself tells whether they changed."""
    files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] in _READ_BY]
    return {file: _code_stamp(file) for file in files if file}


def _code_stamp(path: str) -> tuple[int, int]:
    info = os.stat(path)
    return info.st_mtime_ns, info.st_size
