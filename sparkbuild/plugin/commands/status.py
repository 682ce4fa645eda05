"""`doit status`: what serves where, since when, and from which lock."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple, cast

from sparkbuild.agent.wire.lanes import LaneAsk
from sparkbuild.app.spoken import spoken
from sparkbuild.core import units
from sparkbuild.core.goal import Goal
from sparkbuild.core.reasons import Reason
from sparkbuild.plugin.commands.base import JSON, FactCommand
from sparkbuild.serving.ranks import LaneSeen, Seen, look, ranks_of
from sparkbuild.serving.state import LaneState, Phase, state

FOR_PEOPLE = {"lane", "launched", "now"}  # what `state` was made of, and what is said beside it


class Row(NamedTuple):
    """One lane, with the fields of docs/commands.md; times in unix seconds by the clock of its node."""

    lane: LaneState
    launched: float | None
    now: float
    recipe: str
    cluster: str | None
    node: str | None
    nodes: list[str]
    state: str
    since: float | None
    model_id: str | None
    url: str | None
    rank: int | None
    pid: int | None
    container: str | None
    lock: str | None
    key: str | None
    current: bool | None
    ready_seconds: float | None
    ttft_seconds: float | None
    gates: dict[str, bool]
    protected: bool

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {name: value for name, value in self._asdict().items() if name not in FOR_PEOPLE}


class Status(FactCommand):
    """The command `status`."""

    name = "status"
    needs_tasks = False
    asks = True
    doc_purpose = "show what serves where, since when, from which lock"
    doc_usage = "[RECIPE ...]"
    doc_description = None
    cmd_options = (JSON,)

    def _execute(self, as_json: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        goals = self.catalog.goals
        names = self.recipes(pos_args or []) or list(self.opened.stops())
        lanes = {name: goals.lanes[name] for name in names if name in goals.lanes}
        self.opened.observed.look(lanes.values())
        rows = [self._row(name, lanes.get(name)) for name in names]
        known = {*goals.lanes, *(name for name in names if self._is_here(name))}
        # a lane whose recipe is gone, if it runs or may
        rows = [row for row in rows if row.recipe in known or not row.lane.over]
        if as_json:
            shown = {"lanes": [row.as_dict() for row in rows]}
            self.outstream.write(json.dumps(shown, ensure_ascii=False, indent=1) + "\n")
        else:
            self._print(rows)
        return 2 if not pos_args and self.tell_problems() else 0

    def _row(self, recipe: str, goal: Goal | None) -> Row:
        """One lane; a recipe that cannot be read has no goal, but may have a lane that runs."""
        found, now = self._state(recipe, goal)
        record = found.recorded
        ready = record.get("ready")
        alive = found.alive
        reasons = self.opened.observed.judge(goal).reasons if goal else ()
        # without a goal, a node that nothing of the lane was seen on is only one of those that were looked at
        seen = goal is not None or found.record is not None or found.phase is Phase.UNRECORDED
        # of a lane that nobody could see, nobody knows what it was launched from
        current = not any(_differs(reason, goal) for reason in reasons) if goal and found.record else None
        return Row(
            recipe=recipe,
            cluster=goal.node if goal else None,
            node=found.node if seen else None,
            nodes=list(found.nodes or (found.node,)) if seen else [],
            state=found.text,
            lane=found,
            launched=record.get("launched_at") if alive else None,
            now=now,
            since=record.get("served_at") or record.get("launched_at") if alive else record.get("stopped_at"),
            model_id=record.get("model_id") if alive or not goal else goal.spec.model_id,
            url=f"http://{record['host']}:{record['port']}/v1" if alive and record.get("port") else None,
            rank=record.get("rank", 0) if alive else None,
            pid=(record.get("pid") or None) if alive else None,
            container=(record.get("container") or None) if alive else None,
            lock=record.get("lock") if alive else None,
            key=(record.get("key") or "")[:12] if alive else None,
            current=current,
            ready_seconds=ready.get("seconds") if ready else None,
            ttft_seconds=ready.get("ttft") if ready else None,
            gates={gate["id"]: bool(gate["ok"]) for gate in record.get("gates") or ()} if alive else {},
            protected=bool(record.get("protect")),
        )

    def _state(self, recipe: str, goal: Goal | None) -> tuple[LaneState, float]:
        """And the time by the clock that the times of its record are by: its node's."""
        seen: tuple[Seen, ...] = ()
        if goal:
            fact = cast("LaneSeen", self.opened.observed.fact(goal))  # as its kind has it
            seen = ranks_of(goal, fact)
        known = goal.nodes if goal else ()
        nodes = self.opened.stops()[recipe].nodes
        # docker is asked as well: a container may run without a record
        more = [node for node in nodes if node not in known]
        facts = look(self.opened.nodes.agent, more, LaneAsk(recipe=recipe, port=0, runtime="docker"))
        seen += tuple(Seen(number, node, fact) for number, (node, fact) in enumerate(facts.items(), len(known)))
        found = state(recipe, seen, goal.spec.runtime if goal else "", known)
        clocks = [rank.fact["now"] for rank in seen if rank.node == found.node and rank.fact.get("now")]
        return found, clocks[0] if clocks else time.time()

    def _print(self, rows: list[Row]) -> None:
        if not rows:
            self.outstream.write("no recipe is here to be served\n")
        width = max((len(row.recipe) for row in rows), default=0)
        for row in sorted(rows, key=lambda row: (row.lane.phase is Phase.NOT_RUNNING, row.recipe)):
            text = "; ".join((f"{row.lane.main}{_since(row)}", *row.lane.remarks))
            place = row.cluster or ", ".join(row.nodes) or "?"
            self.outstream.write(spoken(f"{row.recipe:<{width + 2}}{place:<10}{text}\n"))
            if row.lane.phase is Phase.UNRECORDED:
                self.outstream.write(spoken(f"    doit stop:{row.recipe} ends it\n"))
            if row.rank is not None:
                self._print_living(row)

    def _print_living(self, row: Row) -> None:
        age = units.duration(row.now - row.launched) if row.launched else "?"
        lock = (row.lock or "?").split("@")
        what = f"container {row.container[:12]}" if row.container else f"process {row.pid}"
        where = f" on {', '.join(row.nodes)}" if len(row.nodes) > 1 else ""
        if row.url:
            self.outstream.write(f"    {row.model_id} at {row.url}, {what}{where}, up {age}\n")
        else:  # not of rank 0, which alone serves
            launch = f"rank {row.rank} of a launch{where}"
            self.outstream.write(f"    {row.model_id}, {launch}: {what} on {row.node}, up {age}\n")
        self.outstream.write(f"    from lock {lock[0]} ({lock[-1][:12]}), key {row.key}")
        if row.current is None:
            self.outstream.write("; the recipe cannot be read" if self._is_here(row.recipe) else "; no recipe any more")
        elif not row.current:
            self.outstream.write(spoken(f"; the recipe has changed: doit why serve:{row.recipe}"))
        self.outstream.write("; protected\n" if row.protected else "\n")

    def _is_here(self, recipe: str) -> bool:
        return f"recipes/{recipe}" in self.catalog.names.problems


def _differs(reason: Reason, goal: Goal) -> bool:
    """True for a reason that is a changed part of the key, and no remark about one."""
    return reason.part in goal.key.parts and (reason.old, reason.new) != (None, None)


def _since(row: Row) -> str:
    """Its time, said of what it is the time of."""
    if not row.since:
        return ""
    when, phase = units.when(row.since), row.lane.phase
    if row.rank is None:
        return f", ended {when}" if phase is Phase.DID_NOT_START else f" since {when}"
    return (
        f" since {when}"
        if phase in {Phase.SERVING, Phase.STARTING}
        else f", launched {units.when(row.launched or row.since)}"
    )
