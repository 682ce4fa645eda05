"""Tasks about locks: `lock:check` reads them and compares them with their files, `lock:pin:NAME` pins these anew."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.app.opened import Opened
from sparkbuild.core.errors import LockError
from sparkbuild.core.units import count
from sparkbuild.plugin.adapters import docs
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.factory import DoitTask
from sparkbuild.workspace.locks import sourcelock


class CheckLocks(_Action):
    """Read every lock, each component as it is for use, and compare it with its local inputs; no network."""

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        del log
        found = [str(error) for name, error in here.catalog.names.problems.items() if name.startswith("locks/")]
        pinned = 0
        for lock in here.catalog.workspace.locks.values():
            found += [str(error) for error in (*lock.check(), *sourcelock.verify(lock, here.root))]
            pinned += len(lock.sources()) + len(lock.artifacts()) + len(lock.images())
        if found:
            raise LockError("\n".join(dict.fromkeys(found)))
        locks = count(len(here.catalog.workspace.locks), "lock")
        self.result = f"{locks} with {count(pinned, 'component')}: read, and the local files are as pinned"


class PinLock(_Action):
    """Write the sha256 of a lock's local inputs as they are now."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        del log
        path = here.root / "locks" / f"{self.name}.source.lock"
        text, changed = sourcelock.pin(path, here.root)
        if changed:
            sourcelock.write(path, text, here.catalog.relative(path))
        self.result = f"changed: {', '.join(changed)}" if changed else "nothing to change"


def check_task() -> DoitTask:
    """The task `lock:check`."""
    return {"basename": "lock", "name": "check", "doc": docs.CHECK, "actions": [CheckLocks()]}


def pin_task(name: str) -> DoitTask:
    """The task `lock:pin:NAME`."""
    return {"basename": "lock", "name": f"pin:{name}", "doc": docs.pin(name), "actions": [PinLock(name)]}
