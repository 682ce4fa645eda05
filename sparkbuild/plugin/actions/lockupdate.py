"""Tasks `lock:update NAME [component=ref ...]`: pin anew what a lock or a recipe follows, and show what that changes.

doit takes `component=ref` for one of its variables wherever it stands, so these are read from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from doit import doit_cmd

from sparkbuild.app.goals.prebuilt import registry_images
from sparkbuild.app.names import TASK, Names
from sparkbuild.app.opened import Opened
from sparkbuild.app.pins import recipepin
from sparkbuild.app.pins.pins import Change, check_asked, pin_all
from sparkbuild.core.errors import LockError
from sparkbuild.core.suggest import did_you_mean
from sparkbuild.plugin.adapters import docs
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.factory import DoitTask
from sparkbuild.plugin.adapters.misread import no_option
from sparkbuild.workspace.locks import sourcelock
from sparkbuild.workspace.shapes.workspace import Workspace

_DRY = {"name": "dry_run", "long": "dry-run", "type": bool, "default": False, "help": "show the changes, write nothing"}
_DRY_RUN = "--dry-run"
_SHOWN = 12  # hex digits of a hash


class UpdateLock(_Action):
    """Look up the components, all of them before anything is written. `name` is that of a lock, or of a recipe with
    `serve:` before it; "" means: the first argument names it.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def check(self, here: Opened) -> None:
        """See _Action: what is named must be there, and have what is asked for."""
        name, recipe = self._named(here)
        if recipe:
            recipepin.check(recipe, self._asked, here.catalog)
        elif name in here.catalog.workspace.locks:
            check_asked(here.catalog.workspace.locks[name], self._asked)

    @property
    def _words(self) -> list[str]:
        return list(self.task.pos_arg_val or [])

    @property
    def _asked(self) -> dict[str, str]:
        return dict(doit_cmd._CMDLINE_VARS or {})  # noqa: SLF001 - doit has no way to list them

    def _named(self, here: Opened) -> tuple[str, str]:
        """The name, and the recipe that it is, "" when it is a lock."""
        words = [word for word in self._words if word != _DRY_RUN]
        wrong = next((word for word in words if word.startswith("-")), "")
        if wrong:
            raise LockError(no_option(wrong, self.task.name, [_DRY_RUN]))
        if len(words) != (0 if self.name else 1):
            raise LockError(
                "name one lock, or one recipe with an image of a registry",
                found=" ".join(words) or "none",
                wanted="doit lock:update LOCK [component=ref ...] [--dry-run]\n"
                f"doit lock:update {TASK}RECIPE [image=TAG] [--dry-run]",
            )
        name = self.name or words[0]
        return name, self._recipe(name, here.catalog.workspace)

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        del log
        name, recipe = self._named(here)
        dry = bool((self.task.options or {}).get("dry_run")) or _DRY_RUN in self._words
        asked = self._asked
        if recipe:
            lines, values = recipepin.pin(recipe, asked, here.catalog, here.work.run(self.task.name), dry=dry)
            self.result = "\n      ".join(lines)
            here.work.runlog.write("update", task=self.task.name, recipe=recipe, changes=values, dry_run=dry)
        else:
            self._lock(name, asked, here, dry=dry)

    @staticmethod
    def _recipe(name: str, workspace: Workspace) -> str:
        """The recipe that is meant, "" when it is a lock. Where both have the name, it is the lock."""
        bare = name.removeprefix(TASK)
        if name == bare and (name in workspace.locks or f"locks/{name}" in workspace.problems):
            return ""
        if bare in workspace.recipes:
            return bare
        problem = workspace.problems.get(f"recipes/{bare}")
        if problem:
            raise problem
        if name != bare:
            raise LockError(f"there is no recipe `{bare}`", wanted=did_you_mean(bare, workspace.recipes))
        names = [*workspace.locks, *registry_images(workspace)]
        raise LockError(f"there is no lock `{name}`, and no recipe", wanted=did_you_mean(name, names))

    def _lock(self, name: str, asked: dict[str, str], here: Opened, *, dry: bool) -> None:
        path = here.root / "locks" / f"{name}{sourcelock.SUFFIX}"
        lock = here.catalog.workspace.locks.get(name)
        if lock is None:
            raise here.catalog.workspace.problems[f"locks/{name}"]
        text = path.read_text(encoding="utf-8")
        changes = pin_all(lock, asked, here.work.run(self.task.name))
        values = {key: value for change in changes for key, value in change.values.items()}
        without = [key for change in changes for key in change.without]
        for key in (*values, *without):
            if key in lock.included:
                raise LockError(
                    f"`{key}` comes from a file that the lock includes",
                    where=lock.included[key],
                    next="change it there, or take the file out of the lock",
                )
        new = sourcelock.update(text, values, lock.path, beside=True, without=without)
        self._check(new, lock)
        lines = [line for change in changes for line in told(change, lock.values)]
        changed = sum(change.changes(lock.values) for change in changes)
        if not changed:
            head = "nothing to change"
        elif dry:
            head = f"{changed} of {len(changes)} would change; nothing was written"
        else:
            if path.read_text(encoding="utf-8") != text:
                what = f"{lock.path} was changed meanwhile; nothing was written"
                raise LockError(what, next="run again: what is there now is updated then")
            sourcelock.write(path, new, lock.path)
            head = f"{changed} of {len(changes)} changed in {lock.path}"
        self.result = "\n      ".join([head, *lines])
        here.work.runlog.write("update", task=self.task.name, lock=name, changes=values if not dry else {}, dry_run=dry)

    @staticmethod
    def _check(text: str, old: sourcelock.SourceLock) -> None:
        """The new lock must be one that can be used, as far as the old one was."""
        new = sourcelock.parse(text, old.name, old.path)
        for key, where in old.included.items():
            new.values.setdefault(key, old.values[key])
            new.included[key] = where
        before = {error.what for error in old.check()}
        for error in new.check():
            if error.what not in before:
                raise error


def told(change: Change, old: dict[str, str]) -> list[str]:
    """A component's lines: each value as old -> new, then the subjects, then what else is to be known."""
    pairs = [(key, old.get(key, ""), value) for key, value in change.values.items() if old.get(key, "") != value]
    pairs += [(key, old[key], "") for key in change.without if key in old]
    lines = [f"{key}: {_short(key, was) or '-'} -> {_short(key, now) or '-'}" for key, was, now in pairs]
    if not pairs:
        lines = [f"{change.component}: as it was" + (f" ({change.note})" if change.note else "")]
    elif change.note:
        lines.append(f"  {change.note}")
    if change.count:
        lines.append(f"  {change.count} commits:" if change.count > 1 else "  1 commit:")
        lines += [f"    {subject}" for subject in change.subjects]
        if change.count > len(change.subjects):
            lines.append(f"    and {change.count - len(change.subjects)} more")
    return lines


def _short(key: str, value: str) -> str:
    hashed = key.endswith((".commit", ".tree", ".sha256"))
    return value[:_SHOWN] if hashed else value


def update_tasks(names: Names) -> Iterator[DoitTask]:
    """The tasks `lock:update`, which takes the name as an argument, `lock:update:LOCK`, `lock:update:serve:RECIPE`."""
    for task, doc in docs.update(names).items():
        _, _, name = task.partition(":")
        more = {} if name else {"pos_arg": "names"}
        yield {"basename": "lock", "name": task, "doc": doc, "params": [_DRY], "actions": [UpdateLock(name)], **more}
