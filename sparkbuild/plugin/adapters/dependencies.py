"""When a task is up to date: a goal by the plan, any other task by doit's own rule."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from doit.dependency import Dependency, DependencyStatus

from sparkbuild.app.opened import Opened
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal, is_uri
from sparkbuild.core.plan import MAYBE, OK, RUN, UNKNOWN
from sparkbuild.core.writable import spared
from sparkbuild.plugin.adapters.checker import CHANGED, FactChecker, stamp_of

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")  # it becomes the name of a folder


class Dependencies(Dependency):  # type: ignore[misc]
    """doit's dependency manager, with the plan of this run as the judge of goals."""

    def __init__(self, opened: Opened, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._opened = opened
        if isinstance(self.checker, FactChecker):  # doit makes it; a dodo.py may name another
            self.checker.opened = opened

    def get_status(self, task: Any, tasks_dict: Any, get_log: bool = False) -> Any:  # noqa: FBT001, FBT002 - doit's signature
        """See doit: up-to-date, run or error."""
        goal = goal_of(task)
        if goal is None:
            return super().get_status(task, tasks_dict, get_log)
        task.dep_changed = []
        result = DependencyStatus(get_log)
        if task.params:
            task.init_options()
            goal = task.meta["goal"] = variant(goal, task.options)
            if task.options.get("again"):
                result.add_reason("facts", "asked for again")
                return result
        refused = self._opened.planned.refused.get(goal.target)
        if refused is not None:
            result.error_reason = str(refused)
            result.add_reason("facts", result.error_reason, "error")
            return result
        step = self._opened.planned.step(goal)
        state, reasons = step.state, step.reasons
        if state == MAYBE:
            state, reasons = self._settle(goal)
        if step.waits:
            return result  # whether anybody needs it is not known, and those that may cannot be made
        if state == RUN:
            result.add_reason("facts", "; ".join(reason.text for reason in reasons))
        elif state == UNKNOWN and not step.waits:  # that is told of the goal it waits for
            result.error_reason = "; ".join(reason.text for reason in reasons)
            result.add_reason("facts", result.error_reason, "error")
        return result

    def _settle(self, goal: Goal) -> tuple[str, Any]:
        """What it waited for is made (or was never going to be): look again at the goal itself."""
        if any(need.target in self._opened.work.made for need in goal.needs):
            verdict = self._opened.observed.look_again(goal)
            return verdict.state, verdict.reasons
        return OK, ()

    def seal(self, task: Any) -> dict[str, list[int] | None]:
        """The stamps of a task's files before it runs, for `save_success`."""
        sealed: dict[str, list[int] | None] = {}
        for dep in task.file_dep:
            if not is_uri(dep):
                try:
                    sealed[dep] = stamp_of(os.stat(dep))
                except OSError:
                    sealed[dep] = None
        return sealed

    def save_success(self, task: Any, result_hash: Any = None) -> None:
        """Store what the task was made from; a file that changed meanwhile is stored as something it cannot equal."""
        with spared(lambda _text: None, needed=needs_workspace(task)):  # said when its lock could not be had
            self._save_success(task, result_hash)

    def remove_success(self, task: Any) -> None:
        """See doit."""
        with spared(lambda _text: None, needed=needs_workspace(task)):
            super().remove_success(task)

    def _save_success(self, task: Any, result_hash: Any) -> None:
        sealed = task.meta.get("sealed") if isinstance(task.meta, dict) else None
        if goal_of(task) is not None:
            self._set(task.name, "_values_:", task.values)
            self._set(task.name, "deps:", sorted(task.file_dep))
            return
        super().save_success(task, result_hash)
        changed = [dep for dep, stamp in (sealed or {}).items() if stamp != stamp_of(os.stat(dep))]
        for dep in changed:
            self._set(task.name, dep, [[CHANGED], CHANGED])
        if changed:
            self._set(task.name, "deps:", sorted(task.file_dep))


def goal_of(task: Any) -> Goal | None:
    """The goal a doit task was made for."""
    meta = task.meta
    return meta.get("goal") if isinstance(meta, dict) else None


def needs_workspace(task: Any) -> bool:
    """False for a task that is carried out though the workspace cannot be written to: its actions say so."""
    return not task.actions or any(getattr(action, "needs_workspace", True) for action in task.actions)


def check_label(label: str) -> None:
    """Raise ConfigError for what cannot be the label of a report: it becomes the name of a folder."""
    if not _LABEL.fullmatch(label) or label.endswith("_incomplete"):
        raise ConfigError(
            "this cannot be the label of a report",
            found=repr(label),
            wanted="at most 64 letters, digits, `_`, `.` and `-`, a letter or digit first, not ending in _incomplete",
        )


def variant(goal: Goal, options: Mapping[str, Any]) -> Goal:
    """The goal that a task's options ask for: `--label` names another report."""
    label = options.get("label")
    if goal.uri.scheme != "report" or not label:
        return goal
    check_label(label)
    uri = msgspec.structs.replace(goal.uri, path=f"{goal.spec.recipe}/{label}")
    return msgspec.structs.replace(goal, uri=uri, spec=msgspec.structs.replace(goal.spec, label=label))
