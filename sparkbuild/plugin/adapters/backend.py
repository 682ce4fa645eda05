"""doit's task rows in the state file: committed per finished task, shared by runs, a hint and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# doit writes "deps:" last when it saves a task that succeeded, and "ignore:" alone; either completes a row
_COMPLETES = ("deps:", "ignore:")


class WalBackend:
    """doit backend `sparkbuild`. See doit.dependency for the protocol."""

    desc = "sqlite WAL, one commit per finished task"

    def __init__(self, name: str, codec: Any = None, *, module_name: str | None = None) -> None:
        del codec, module_name
        # doit imports all backends before it looks at the command line: what this one needs is loaded when it is used
        from sparkbuild.core.state import StateStore  # noqa: PLC0415 - see the class

        self.name = name
        self.store = StateStore(Path(name))
        self._rows: dict[str, dict[str, object]] = {}
        self._raw: dict[str, str] | None = None

    def _row(self, task: str) -> dict[str, object]:
        if task not in self._rows:
            if self._raw is None:
                self._raw = self.store.rows()
            text = self._raw.get(task)
            self._rows[task] = _read(text)
        return self._rows[task]

    def reload(self, task: str) -> None:
        """Forget what was read of a task: another run may have written it since."""
        self._rows[task] = _read(self.store.row(task))

    def get(self, task: str, key: str) -> Any:
        """A value of a task's row, None when there is none."""
        return self._row(task).get(key)

    def set(self, task: str, key: str, value: Any) -> None:
        """Set a value; the row is committed with the one that completes it."""
        row = self._row(task)
        row[key] = value
        if key in _COMPLETES:
            # a value doit cannot store is the task's failure, not this file's: encode before writing
            self.store.save_row(task, json.dumps(row, ensure_ascii=False))

    def in_(self, task: str) -> bool:
        """True when something is known of the task."""
        return bool(self._row(task))

    def remove(self, task: str) -> None:
        """Forget a task."""
        if self._row(task):
            self.store.drop_rows(task)
        self._rows[task] = {}

    def remove_all(self) -> None:
        """Forget every task and every goal."""
        self.store.drop_rows()
        self._rows, self._raw = {}, {}

    def dump(self) -> None:
        """Nothing is left to write; close the file."""
        self.store.close()


def _read(text: str | None) -> dict[str, object]:
    """What a row says; nothing where it is damaged: a task is looked at anew then."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
