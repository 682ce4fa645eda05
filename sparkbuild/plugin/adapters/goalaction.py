"""The actions of goals: making one, and stopping a lane."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkbuild.app.opened import Opened
from sparkbuild.app.space import eviction
from sparkbuild.app.work import Cost
from sparkbuild.core.errors import NotMadeError, SealError, SpaceError, StateError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, UNKNOWN, Verdict, closure
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.serving import places
from sparkbuild.serving.launch import elsewhere
from sparkbuild.serving.launch.stop import failure, stop_lane


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
