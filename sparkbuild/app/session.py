"""One run of doit in one workspace: the goals, what was seen of them, the plan, the state, the logs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from sparkbuild.app import stagechoice
from sparkbuild.app.goals import chained
from sparkbuild.app.goals.assemble import Goals, assemble
from sparkbuild.app.kinds import kinds
from sparkbuild.app.target import bench_target
from sparkbuild.core import STATE
from sparkbuild.core.errors import ConfigError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Plan, Step, Verdict, closure, plan as make_plan
from sparkbuild.core.pools import Pools
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.core.runlog import RunLog
from sparkbuild.core.state import Made, StateStore
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.facts import Observer
from sparkbuild.nodes.local.process import Popen
from sparkbuild.serving import places
from sparkbuild.workspace.load import load

STATE_FILE = f"{STATE}/state.db"
GRACE = 15.0  # seconds a lane gets to stop when its recipe cannot say so
_POOLS = {"build": 1, "fetch": 2, "nas": 16, "bench": 1}
# Basename of tasks -> the folder whose parts they are named after, and those which decide what else there is of them.
_MADE_FROM: dict[str, tuple[str, tuple[str, ...]]] = {
    "artifact": ("locks", ("recipes", "images")),
    "bench": ("recipes", ()),
    "image": ("images", ("recipes",)),
    "prune": ("", ("recipes", "images")),
    "serve": ("recipes", ()),
    "source": ("locks", ("images",)),
    "stage": ("recipes", ()),
    "sync": ("images", ("recipes",)),
}

_NAMED_AFTER = {"lock": "locks", "repro": "images"}  # tasks that are no goals


class Session:
    """What the commands and actions of one run share. Making one reads the workspace and looks at no node."""

    def __init__(self, root: Path, begun: Popen | None = None) -> None:
        self.root = root
        self.workspace = load(root)
        config = self.workspace.config
        places = {name: Place(**msgspec.structs.asdict(node)) for name, node in config.nodes.items()}
        fabrics = dict.fromkeys(cluster.fabric for cluster in config.clusters.values() if cluster.fabric)
        self.nodes = Nodes(root, places, begun, tuple(fabrics))
        self.goals: Goals = assemble(self.workspace)
        benches = any(recipe.spec.bench for recipe in self.workspace.recipes.values())
        self.pools = Pools({**_POOLS, **dict.fromkeys(config.nodes, 1), **config.pools})
        self.kinds: Mapping[str, Kind[Any]] = kinds(
            str(root), self.nodes, self.pools, self._target if benches else None, self.holders, forced=self.forced
        )
        self.observer = Observer(self.kinds, self.nodes.agent)
        self.state = StateStore(root / STATE_FILE)
        self.runlog = RunLog(root / STATE / "runs")
        self.locks = root / STATE / "locks"
        self.force = False
        self.staging: dict[str, str] = {}  # target -> what --stage says of it: skip or force
        self.listing = False
        self.progress: Any = None
        self.refused: dict[str, SparkbuildError] = {}  # target -> why this run does not try it
        self.told: list[tuple[str, str]] = []  # task, what became of it: said when the run is interrupted
        self.made: dict[str, tuple[float, int]] = {}  # target -> seconds, bytes, of what this run made
        self._last: dict[str, Made] | None = None
        self._plan: dict[str, Step] = {}
        self._guard = threading.RLock()

    def last(self, goal: Goal) -> Made | None:
        """How the goal was last made, as this workspace remembers it."""
        return self.made_before().get(str(goal.uri))

    def made_before(self) -> Mapping[str, Made]:
        """How everything was last made, by its name without the key; what has no goal any more too."""
        with self._guard:
            if self._last is None:
                self._last = self.state.all_made()
            return self._last

    def forced(self, goal: Goal) -> bool:
        """Whether staged data is read in full and mended, though it may look right."""
        return self.staging.get(goal.target) == stagechoice.FORCE

    def judge(self, goal: Goal) -> Verdict:
        """What the facts say of one goal alone."""
        if self.staging.get(goal.target) == stagechoice.SKIP:
            return stagechoice.SKIPPED
        kind, fact = self.kinds[goal.uri.scheme], self.observer.fact(goal)
        verdict = kind.judge(goal, fact, None)
        # how it was last made only explains: a look at which all is well need not open the state file
        return verdict if verdict.state == OK else kind.judge(goal, fact, self.last(goal))

    def _asked(self, goal: Goal) -> Verdict:
        """What is to be planned for a goal: what the facts say, and what --stage says beyond that."""
        verdict = self.judge(goal)
        return stagechoice.forced(verdict) if self.forced(goal) else verdict

    def _look(self, goals: Iterable[Goal], *, again: bool = False) -> None:
        self.observer.look([g for g in goals if self.staging.get(g.target) != stagechoice.SKIP], again=again)

    def look_again(self, goal: Goal) -> Verdict:
        """Judge a goal by new facts."""
        self._look([goal], again=True)
        return self.judge(goal)

    def holders(self, goal: Goal) -> list[tuple[str, str]]:
        """Other folders that have what a goal stages, whole, with their nodes; those of its own node come first."""
        mine = (goal.node, goal.spec.dst)
        same = [
            one
            for one in self.goals.by_task.values()
            if one.uri.scheme == goal.uri.scheme
            and one.key.digest == goal.key.digest
            and (one.node, one.spec.dst) != mine
        ]
        same.sort(key=lambda one: one.node != goal.node)
        self._look(same)
        return list(dict.fromkeys((one.node, one.spec.dst) for one in same if self.judge(one).state == OK))

    def plan(self, goals: Iterable[Goal]) -> Plan:
        """The plan for the goals. All nodes are asked at the same time: for what stays, then for what is missing."""
        wanted = tuple(goals)
        selected = {goal.target for goal in wanted}
        ordered = closure(wanted)
        level = [goal for goal in ordered if not goal.transient or goal.target in selected]
        while level:
            self._look(level)
            needed = {need.target: need for goal in level if self._asked(goal).state == RUN for need in goal.needs}
            level = [need for need in needed.values() if need.transient and need.target not in selected]
        made = self._awaited(make_plan(wanted, self._asked))
        with self._guard:
            self._plan |= {step.goal.target: step for step in made}
        return made

    def _awaited(self, made: Plan) -> Plan:
        """The plan, in which a source that is made before it is needed need not be there yet."""
        if not any((step.verdict.fact or {}).get("refused") for step in made if step.goal.uri.scheme == "staged"):
            return made
        return chained.awaited(made)

    def preflight(self, step: Step) -> SparkbuildError | None:
        """Why making the step's goal would fail, as far as that can be told beforehand: a template, a missing secret, a
        node that serves another lane. A node that does not answer was told already, and what needs none is looked at.
        """
        kind: Any = self.kinds[step.goal.uri.scheme]
        tag = any(reason.part == "tag" for reason in step.verdict.reasons)  # what it means now is worth asking
        looks = step.verdict.state != UNKNOWN or tag or getattr(kind, "preflight_needs_no_node", False)
        if not looks or not hasattr(kind, "preflight"):
            return None
        found: SparkbuildError | None = kind.preflight(step.goal, step.verdict)
        return found or (stagechoice.missing(self.nodes, step, self.staging) if self.staging else None)

    def refusals(self, made: Plan) -> dict[str, SparkbuildError]:
        """Why goals of a plan would fail, by target. What needs one of them is left out: that would be no news, and
        what it says of itself may follow from the same cause.
        """
        found: dict[str, SparkbuildError] = {}
        refused: set[str] = set()
        for step in made.stale:
            if not refused.isdisjoint(need.target for need in step.goal.needs):
                refused.add(step.goal.target)
            elif (error := self.preflight(step)) is not None:
                found[step.goal.target] = error
                refused.add(step.goal.target)
        return found

    @staticmethod
    def with_refused_images(made: Plan, refusals: Mapping[str, SparkbuildError]) -> Plan:
        """The plan in which an image that cannot be had is unknown, and says why."""

        def seen(step: Step) -> Step:
            error = refusals.get(step.goal.target)
            if error is None or step.goal.uri.scheme != "image":
                return step
            return Step(step.goal, UNKNOWN, (Reason("image", str(error)),), None, step.verdict)

        return Plan(tuple(seen(step) for step in made))

    def _target(self, goal: Goal, run: Run) -> Any:
        del run
        return bench_target(goal, self.look_again, self.nodes)

    def step(self, goal: Goal) -> Step:
        """The goal's step in the plan of this run."""
        with self._guard:
            if goal.target not in self._plan:
                self.plan([goal])
            return self._plan[goal.target]

    def waited_for(self, goal: Goal) -> None:
        """Another run was at the goal: why it is made is said by what it has left, not by what was seen before."""
        step = self.step(goal)
        if step.state != RUN:
            return
        verdict = self.look_again(goal)
        reasons = verdict.reasons if verdict.state != OK else (Reason("run", "another run was at it"),)
        with self._guard:
            self._plan[goal.target] = msgspec.structs.replace(step, reasons=reasons)

    def surroundings(self, goal: Goal, options: Mapping[str, Any], task: str = "") -> Run:
        """What an action hands to a kind's `apply`; `task` when it is not the goal's own."""
        name = task or goal.task
        return Run(
            root=self.root,
            log=self.runlog.task_log(name),
            agent=self.nodes.agent,
            report=lambda progress: self.report(name, progress),
            tell=lambda text: self.told.append((name, text)),
            force=self.force or self.forced(goal),
            options=options,
        )

    def report(self, task: str, progress: Progress) -> None:
        """Show progress, where somebody shows it."""
        if self.progress is not None:
            with contextlib.suppress(OSError):  # a terminal that was closed ends no step
                self.progress.update(task, progress)

    def relative(self, path: Path) -> str:
        """A path as it is shown and stored: relative to the workspace."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Names that stand for several goals (`stage`, `stage:demo`, `stage:demo:dgx1`) and the tasks of these. What is
        no part of a group is all there is of one that would be empty without it, but for the groups of a basename.
        """
        found: dict[str, list[str]] = {}
        for task in self.goals.by_task:
            pieces = task.split(":")
            for end in range(1, len(pieces)):
                name = ":".join(pieces[:end])
                if name not in self.goals.by_task:
                    found.setdefault(name, []).append(task)
        for name, tasks in tuple(found.items()):
            parts = [task for task in tasks if self.goals.is_part(task)]
            found[name] = parts or (tasks if ":" in name else [])
        return {name: tasks for name, tasks in found.items() if tasks}

    def stoppable(self) -> dict[str, tuple[tuple[str, ...], float]]:
        """Recipes whose lane can be stopped: nodes and grace. A lane must stay stoppable while its recipe is broken
        (where it was to run cannot be read then: it is where this workspace noted that it launched it, and where it
        noted nothing every node is looked at), renamed, removed, or moved to other nodes. Files of this machine are
        read, and no node is asked.
        """
        everywhere, all_noted = tuple(self.workspace.config.nodes), places.noted(str(self.root))
        found = {name: (lane.nodes, lane.spec.stop_grace) for name, lane in self.goals.lanes.items()}
        for problem in self.goals.problems:
            folder, _, name = problem.partition("/")
            if folder == "recipes" and name not in found:
                noted = tuple(node for node in all_noted.get(name, ()) if node in everywhere)
                found[name] = (noted or everywhere, GRACE)
        for name, node in self.nodes.orphans(found).items():
            found[name] = ((node,), GRACE)
        for name, noted in all_noted.items():
            nodes, grace = found.get(name, ((), GRACE))
            more = tuple(node for node in noted if node not in nodes and node in everywhere)
            if nodes or more:
                found[name] = ((*nodes, *more), grace)
        return found

    def problem_for(self, task: str) -> SparkbuildError | None:
        """The configuration error that keeps a task of this name from existing, if there is one."""
        basename, *rest = task.split(":")
        folder = _NAMED_AFTER.get(basename) or _MADE_FROM.get(basename, ("recipes", ()))[0]
        name = "".join(rest[1:2] if basename == "lock" else rest[:1])  # lock:verify:NAME
        return self.goals.problems.get(f"{folder}/{name}")

    def lacking(self, names: Iterable[str]) -> dict[str, ConfigError]:
        """The broken parts of the workspace for want of which the groups and patterns among the names may lack goals,
        as `problems`.
        """
        groups = [name for name in names if name not in self.goals.by_task or name.startswith("prune:")]
        wanted = [name for name in groups if "://" not in name]
        return {
            part: error
            for part, error in self.goals.problems.items()
            if any(_may_lack(name, *part.partition("/")[::2]) for name in wanted)
        }

    def close(self) -> None:
        """End the connections, fold the state file."""
        self.nodes.close()
        self.state.close()


def _may_lack(name: str, folder: str, broken: str) -> bool:
    """Whether a group or pattern would have goals of a broken recipe, image or lock, or may for all one can read."""
    literal, star, _ = name.partition("*")
    wanted = literal if star else f"{literal}:"
    for basename, (by_name, by_any) in _MADE_FROM.items():
        if folder == by_name:
            goals = f"{basename}:{broken}:"
        elif folder in by_any:
            goals = f"{basename}:"
        else:
            continue
        if goals.startswith(wanted) or wanted.startswith(goals):
            return True
    return False


_sessions: dict[Path, Session] = {}


def session(root: Path | None = None, begun: Popen | None = None) -> Session:
    """The session of a workspace (the current folder's: doit changes to the dodo file's folder before loading)."""
    where = (root or Path.cwd()).resolve()
    if where not in _sessions:
        _sessions[where] = Session(where, begun)
    return _sessions[where]


def current() -> Session | None:
    """The session, if the loaded dodo file is a workspace's."""
    return next(iter(_sessions.values()), None)
