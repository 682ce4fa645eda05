"""Actions: making a goal, and running a program, both with a log of their own and no use of sys.stdout.

doit's own PythonAction swaps sys.stdout for the whole process, which breaks under threads.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.action import BaseAction
from doit.exceptions import TaskError, TaskFailed

from sparkbuild.app.opened import Opened
from sparkbuild.app.work import Cost
from sparkbuild.core import child
from sparkbuild.core.errors import (
    ChildError,
    NotMadeError,
    SealError,
    SpaceError,
    SparkbuildError,
    StateError,
    UnsureError,
)
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, UNKNOWN, Verdict, closure
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made
from sparkbuild.plugin.adapters.current import opened


class Unsure(TaskFailed):  # type: ignore[misc]
    """A failure that is none yet: not all that had to be asked did answer."""

    code = 4


class _Action(BaseAction, ABC):  # type: ignore[misc]
    """What doit wants of an action, and what a run wants of ours."""

    needs_workspace = True  # False: carried out though nothing can be written to the workspace

    def __init__(self) -> None:
        self.task: Any = None
        self.out = ""
        self.err = ""
        self.result: Any = None
        self.values: dict[str, Any] = {}

    def execute(self, out: Any = None, err: Any = None) -> Any:
        """Do it; a failure is returned, a stop (Interrupted) is raised."""
        del out, err
        here = opened()
        log = here.work.runlog.task_log(self.task.name)
        start = time.time()
        try:
            self.work(here, log)
        except SparkbuildError as error:
            self._failed(here, log, start, str(error))
            return Unsure(str(error)) if isinstance(error, UnsureError) else TaskFailed(str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours: the user gets one line, the log gets the rest
            text = traceback.format_exc()
            message = f"{type(error).__name__}: {error}\n  where:  {here.catalog.relative(log)} has the traceback"
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as refused:
                message = f"{type(error).__name__}: {error}\n  next:   {log}: {refused.strerror}; df {here.root}"
            self._failed(here, log, start, message)
            return TaskError(message)
        return None

    def check(self, here: Opened) -> None:
        """Look at the task's arguments, before any task of the run begins; raises SparkbuildError for wrong ones. For
        an action of a task that takes some.
        """

    @abstractmethod
    def work(self, here: Opened, log: Path) -> None:
        """The action itself; raises SparkbuildError to fail."""

    def _failed(self, here: Opened, log: Path, start: float, message: str) -> None:
        seconds = round(time.time() - start, 3)
        with suppress(StateError):  # the failure itself is what is to be heard
            here.work.runlog.write(
                "failed", task=self.task.name, seconds=seconds, error=message, log=here.catalog.relative(log)
            )


def came_with(goal: Goal, made: Mapping[str, Any]) -> str:
    """The step of this very run that made a goal as well, as a build has its image in the docker of its build node; ""
    when none did. `made` are the targets that this run made.
    """
    return next((need.task for need in reversed(closure(goal.needs)) if need.target in made), "")


class GoalAction(_Action):
    """Make a goal true: look again, apply what is missing, look again, and believe only that last look."""

    def __init__(self, goal: Goal) -> None:
        super().__init__()
        self.goal = goal

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        goal: Goal = self.task.meta["goal"]  # as the task's options ask for it
        options = self.task.options or {}
        forced = here.observed.choice.forces(goal)
        work, force = here.work, here.work.force or bool(options.get("again")) or forced
        kind = here.observed.kinds[goal.uri.scheme]
        with work.pools.hold(goal.pools):
            verdict = here.observed.look_again(goal)  # under the lock: another run may have made it meanwhile
            if verdict.state == UNKNOWN:
                raise NotMadeError(f"{goal.task} cannot be made", found=_texts(verdict))
            if verdict.state == OK and not force:
                giver = came_with(goal, work.made)
                text = f"came with {giver}" if giver else "made by another run meanwhile"
                work.runlog.write("ok", task=goal.task, uri=goal.target, text=text)
                return
            _check_inputs(goal, here.root)
            run = work.run(goal.task, force=forced, options=options)
            reasons = [reason.text for reason in verdict.reasons] or ["asked for"]
            work.runlog.write("start", task=goal.task, uri=goal.target, reasons=reasons, parts=goal.key.parts)
            run.note("\n".join([reason.because for reason in verdict.reasons] or ["because it was asked for"]))
            start = time.time()
            size = _applied(kind, goal, verdict, run, here)
            _check_inputs(goal, here.root)
            after = here.observed.look_again(goal)
            if after.state != OK and run.unfinished:
                self.result = run.unfinished
                work.runlog.write("unfinished", task=goal.task, uri=goal.target, text=self.result)
                return
            if after.state != OK:
                raise NotMadeError(
                    f"{goal.task} ended without an error, but {goal.uri} is not as it should be",
                    found=_texts(after),
                    where=here.catalog.relative(log),
                )
            self.result = after.told
            seconds = time.time() - start
            work.made[goal.target] = cost = Cost(seconds, size)
            last = here.observed.last(goal)
            if last is not None and last.key == goal.key.digest and size < last.bytes:
                cost = Cost(last.seconds, last.bytes)  # only mended: the estimate is for making all of it
            made = Made(goal.key.digest, goal.key.parts, time.time(), *cost, work.runlog.name)
            work.state.record(str(goal.uri), made)
            work.runlog.write(
                "made",
                task=goal.task,
                uri=goal.target,
                seconds=round(seconds, 3),
                bytes=size,
                log=here.catalog.relative(log),
            )


class Proc(_Action):
    """Run a program: its own process group, its output in the task's log and, with `show`, on the terminal as well.

    `argv[0]` "python" means this Python. Ends with the run: SIGTERM to the group, then SIGKILL.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, show: bool = False) -> None:
        super().__init__()
        self.argv = [sys.executable if argv[0] == "python" else argv[0], *argv[1:]]
        self.env = dict(env or {})
        self.show = show

    def __str__(self) -> str:
        return " ".join(self.argv)

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        start = time.time()
        env = {**os.environ, **self.env}
        extra = list(self.task.pos_arg_val or [])  # set where the task takes arguments of its own
        here.work.runlog.write("start", task=self.task.name, argv=self.argv + extra)
        if self.show and sys.stdout is sys.__stdout__:
            # straight to the terminal: a progress display of the program's own needs it to be one. A reporter that
            # took sys.stdout away (doit's json) wants it for itself.
            code = child.reap(child.spawn([*self.argv, *extra], env=env, stdout=None, stderr=None))
            if code:
                raise ChildError(f"{Path(self.argv[0]).name} ended with code {code}")
        else:
            child.run([*self.argv, *extra], log=log, env=env)
        here.work.runlog.write(
            "made", task=self.task.name, seconds=round(time.time() - start, 3), log=here.catalog.relative(log)
        )


class StopAction(_Action):
    """Stop a lane, whatever state the recipe's files and the disk of the workspace are in."""

    needs_workspace = False

    def __init__(self, recipe: str, nodes: tuple[str, ...], grace: float) -> None:
        super().__init__()
        self.recipe = recipe
        self.nodes = nodes
        self.grace = grace

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        from sparkbuild.serving import places  # noqa: PLC0415 - only when a lane is stopped
        from sparkbuild.serving.launch import elsewhere  # noqa: PLC0415 - only when a lane is stopped
        from sparkbuild.serving.launch.stop import failure, stop_lane  # noqa: PLC0415 - as above

        root = str(here.root)
        done = stop_lane(here.nodes, self.recipe, self.nodes, self.grace)
        named = dict.fromkeys([*(node for one in done for node in one.nodes), *places.nodes_of(root, self.recipe)])
        more = tuple(node for node in named if node not in self.nodes and node in here.nodes.names)
        if more:  # a lane that was launched on other nodes than the recipe has by now
            done += stop_lane(here.nodes, self.recipe, more, self.grace)
        gone = tuple(node for node in named if node not in here.nodes.names)
        places.forget(root, self.recipe, [*(one.node for one in done if one.error is None), *gone])
        error = failure(self.recipe, done)
        if error is not None:
            raise error
        if gone:
            raise elsewhere.left_behind(self.recipe, gone)
        foreign = [one.foreign for one in done if one.foreign]
        texts = [one.text for one in done if one.text] or [
            f"lane {self.recipe} does not run on {', '.join(self.nodes)}" + (", from this store" if foreign else "")
        ]
        self.result = text = "; ".join(texts + foreign)
        with suppress(StateError):  # a log; that the lane is stopped is said on the screen
            here.work.runlog.write("stopped", task=self.task.name, text=text, log=here.catalog.relative(log))


def _applied(kind: Kind[Any], goal: Goal, verdict: Verdict, run: Run, here: Opened) -> int:
    try:
        return kind.apply(goal, verdict, run)
    except SpaceError as error:
        if goal.uri.scheme != "staged":
            raise
        from sparkbuild.app.space import eviction  # noqa: PLC0415 - only when there was no room

        raise eviction.advised(here.planned, goal, error, here.work.made) from error


def _texts(verdict: Verdict) -> str:
    return "\n".join(reason.text for reason in verdict.reasons)


def _check_inputs(goal: Goal, root: Path) -> None:
    """The key names the content of local files: what is used must be that content, before and after."""
    for item in goal.inputs:
        try:
            found = hashlib.sha256((root / item.path).read_bytes()).hexdigest()
        except OSError as error:
            found = error.strerror or str(error)
        if found != item.sha256:
            raise SealError(
                f"{item.path} changed while {goal.task} was at work; nothing was recorded",
                found=found[:12],
                wanted=item.sha256[:12],
                next="run again: the new content is used then",
            )
