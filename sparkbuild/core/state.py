"""What earlier runs made, in one sqlite file: a hint for explaining and estimating, never a proof.

WAL mode, one commit per finished task: a SIGKILL keeps every task that had finished. Deleting the file loses
reasons and estimates, nothing else; what exists is always asked of the nodes.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.core.errors import StateError
from sparkbuild.core.writable import writing

if TYPE_CHECKING:
    import sqlite3


class Made(msgspec.Struct, frozen=True):
    """The last making of a goal: its key parts, when (unix seconds), how long (s), how much (bytes), in which run."""

    key: str
    parts: dict[str, object]
    at: float
    seconds: float
    bytes: int
    run: str


_FIELDS = Made.__struct_fields__


def size_again(last: Made | None, key: str) -> int | None:
    """How much making the same once more would move or write, by the last time; None when that made something else, of
    which nothing follows: of an image that is built anew, most layers may be the old ones.
    """
    return last.bytes if last is not None and last.key == key else None


class StateStore:
    """The state file of one workspace. Safe to use from several threads and several processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path.parent, os.W_OK) or (self.path.exists() and not os.access(self.path, os.W_OK)):
                raise PermissionError(
                    errno.EACCES, "this user may not write the state of the workspace", str(self.path)
                )
            from sparkbuild.core import statefile  # noqa: PLC0415 - 3 ms, and a look at which all is well opens no file

            self._connection = statefile.connect(self.path)
        return self._connection

    def _is_mine(self) -> bool:
        """There, and this user may write beside it, as sqlite must even to read. State is only a hint: who may not
        write it looks without it.
        """
        return os.access(self.path, os.R_OK | os.W_OK) and os.access(self.path.parent, os.W_OK)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        """All that is known, nothing where the file cannot be read: on a full disk sqlite cannot even open it."""
        if not self._is_mine():
            return []
        try:
            with writing(self.path):
                return self._open().execute(query).fetchall()
        except StateError:
            return []

    def rows(self) -> dict[str, str]:
        """Every doit row, JSON text by task name; one read, since thousands of small ones cost more."""
        with self._lock:
            return dict(self._rows("select task, row from doit"))

    def row(self, task: str) -> str | None:
        """One doit row as it is now in the file, whoever wrote it."""
        with self._lock, writing(self.path):
            found = self._open().execute("select row from doit where task = ?", (task,)).fetchone()
            return found[0] if found else None

    def save_row(self, task: str, row: str) -> None:
        """Write one doit row, committed on return."""
        with self._lock, writing(self.path):
            self._open().execute("insert or replace into doit values (?, ?)", (task, row))

    def drop_rows(self, task: str | None = None) -> None:
        """Forget one task, or all of them."""
        with self._lock, writing(self.path):
            if task is None:
                self._open().execute("delete from doit")
                self._open().execute("delete from made")
            else:
                self._open().execute("delete from doit where task = ?", (task,))

    def all_made(self) -> dict[str, Made]:
        """The last making of every goal, by its name without the key."""
        with self._lock:
            rows = self._rows("select uri, key, parts, at, seconds, bytes, run from made")
            return {row[0]: made for row in rows if (made := _made(row[1:])) is not None}

    def record(self, uri: str, made: Made) -> None:
        """Note that a goal was made, committed on return."""
        with self._lock, writing(self.path):
            parts = msgspec.json.encode(made.parts, order="sorted").decode()
            values = (uri, made.key, parts, made.at, made.seconds, made.bytes, made.run)
            self._open().execute("insert or replace into made values (?, ?, ?, ?, ?, ?, ?)", values)

    def close(self) -> None:
        """Fold the write-ahead log into the file, so that the file alone can be copied."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _made(row: tuple[Any, ...]) -> Made | None:
    """A row; None for one that somebody else wrote, or a disk: it is a hint that nobody has then."""
    try:
        key, parts, *rest = row
        return msgspec.convert(dict(zip(_FIELDS, (key, msgspec.json.decode(parts), *rest), strict=True)), Made)
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return None
