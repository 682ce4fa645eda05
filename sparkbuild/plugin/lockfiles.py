"""Tasks about locks: `lock:check` compares them with the files they pin, `lock:pin:NAME` pins these anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkbuild.core.errors import LockError
from sparkbuild.plugin.action import _Action
from sparkbuild.plugin.session import Session
from sparkbuild.workspace import sourcelock


class CheckLocks(_Action):
    """Read every lock and compare it with its local inputs; no network."""

    def work(self, here: Session, log: Path) -> None:
        """See the class."""
        del log
        found = [str(error) for name, error in here.goals.problems.items() if name.startswith("locks/")]
        for lock in here.workspace.locks.values():
            found += [str(error) for error in sourcelock.verify(lock, here.root)]
        if found:
            raise LockError("\n".join(found))
        self.result = f"{len(here.workspace.locks)} locks agree with their files"


class PinLock(_Action):
    """Write the sha256 of a lock's local inputs as they are now."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def work(self, here: Session, log: Path) -> None:
        """See the class."""
        del log
        path = here.root / "locks" / f"{self.name}.source.lock"
        text, changed = sourcelock.pin(path, here.root)
        if changed:
            sourcelock.write(path, text)
        self.result = f"changed: {', '.join(changed)}" if changed else "nothing to change"


def check_task(here: Session) -> dict[str, Any]:
    """The task `lock:check`."""
    del here
    doc = "compare every lock with the local files it pins (no network)"
    return {"basename": "lock", "name": "check", "doc": doc, "actions": [CheckLocks()]}


def pin_task(here: Session, name: str) -> dict[str, Any]:
    """The task `lock:pin:NAME`."""
    del here
    return {
        "basename": "lock",
        "name": f"pin:{name}",
        "doc": f"pin {name}'s local files anew",
        "actions": [PinLock(name)],
    }
