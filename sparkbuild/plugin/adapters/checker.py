"""doit's file checker for this workspace: goal names are asked of the facts, files are known by stamp and content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from doit.dependency import FileChangedChecker

from sparkbuild.core.goal import is_uri

if TYPE_CHECKING:
    from sparkbuild.app.opened import Opened

CHANGED = "changed while the task ran"


class FactChecker(FileChangedChecker):  # type: ignore[misc]
    """A goal's target exists when the facts say so; a file is unchanged while its stamp, else its xxh3, is the same.

    The stamp is (mtime_ns, size, inode): an mtime alone survives `cp -p` and `rsync -t` of other content.

    `opened` is the workspace, which doit, who makes the checker, does not know: None for another dodo.py.
    """

    opened: Opened | None = None

    def __init__(self) -> None:
        self._digests: dict[tuple[Any, ...], str] = {}

    def exists(self, path: str) -> bool:
        """Is the target there (a goal's: there in exactly that state)?"""
        if is_uri(path):
            return self._is_met(path)
        return os.path.exists(path)

    def info(self, path: str) -> Any:
        """What `check_modified` is given."""
        return None if is_uri(path) else os.stat(path)

    def check_modified(self, path: str, stat: Any, state: Any) -> bool:
        """Is the file another than the one the state was taken of?"""
        if is_uri(path):
            return not self._is_met(path)
        if not isinstance(state, list) or len(state) != 2:
            return True
        stamp, digest = state
        if stamp == stamp_of(stat):
            return False
        return bool(digest != self.digest(path, stat))

    def get_state(self, path: str, before: Any) -> Any:
        """What is stored of a dependency; None when what is stored still holds."""
        if is_uri(path):
            return [path, ""]
        stat = os.stat(path)
        stamp = stamp_of(stat)
        if isinstance(before, list) and before and before[0] == stamp:
            return None
        return [stamp, self.digest(path, stat)]

    def digest(self, path: str, stat: os.stat_result) -> str:
        """xxh3 of a file's content, computed once per state of the file and run: many tasks may share it."""
        key = (path, *stamp_of(stat))
        if key not in self._digests:
            import xxhash  # noqa: PLC0415 - only when a stamp moved

            digest = xxhash.xxh3_128()
            with open(path, "rb") as file:
                while block := file.read(4 << 20):
                    digest.update(block)
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _is_met(self, target: str) -> bool:
        """True when the named goal is met, by the facts."""
        if self.opened is None:
            return False
        goals = self.opened.catalog.goals.by_task.values()
        goal = next((goal for goal in goals if goal.target == target), None)
        return goal is not None and self.opened.planned.step(goal).state == "ok"


def stamp_of(stat: os.stat_result) -> list[int]:
    """What tells two states of a file apart without reading it."""
    return [stat.st_mtime_ns, stat.st_size, stat.st_ino]
