"""`doit status`: what serves where, since when, and from which lock."""

from __future__ import annotations

import json
import time
from typing import Any

from sparkbuild.core.goal import Goal
from sparkbuild.core.reasons import Reason
from sparkbuild.plugin import units
from sparkbuild.plugin.command import FactCommand
from sparkbuild.plugin.hints import spoken
from sparkbuild.serving.judge import ranks_of

_JSON = {"name": "as_json", "long": "json", "type": bool, "default": False, "help": "print as JSON"}


class Status(FactCommand):
    """The command `status`."""

    name = "status"
    needs_tasks = False
    asks = True
    doc_purpose = "show what serves where, since when, from which lock"
    doc_usage = "[RECIPE ...]"
    doc_description = None
    cmd_options = (_JSON,)

    def _execute(self, as_json: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        session = self.session
        names = self.recipes(pos_args or []) or list(session.stoppable())
        lanes = {name: session.goals.lanes[name] for name in names if name in session.goals.lanes}
        session.observer.look(lanes.values())
        rows = [self._row(name, lanes.get(name)) for name in names]
        known = {*session.goals.lanes, *(name.partition("/")[2] for name in session.goals.problems)}
        rows = [row for row in rows if row["recipe"] in known or row["key"]]  # a lane whose recipe is gone, if it runs
        if as_json:
            self.outstream.write(json.dumps({"lanes": rows}, ensure_ascii=False, indent=1) + "\n")
        else:
            self._print(rows)
        return 2 if not pos_args and self.tell_problems() else 0

    def _row(self, recipe: str, goal: Goal | None) -> dict[str, Any]:
        """One lane; a recipe that cannot be read has no goal, but may have a lane that runs."""
        lost: list[str] = []
        away: list[str] = []
        if goal:
            seen = ranks_of(goal, self.session.observer.fact(goal))
            node, fact = goal.nodes[0], seen[0].fact
            away = [one.node for one in seen[1:] if "unreachable" in one.fact]
            if any(one.alive for one in seen):
                lost = [f"rank {one.rank} on {one.node}" for one in seen if not one.alive and one.node not in away]
        else:
            node, fact = self.session.lane_of_broken(recipe)
        record = fact.get("record") or {}
        ready = record.get("ready") or {}
        alive = bool(fact.get("alive"))
        reasons = self.session.judge(goal).reasons if goal else ()
        return {
            "recipe": recipe,
            "cluster": goal.node if goal else None,
            "node": node,
            "nodes": list(goal.nodes) if goal else [node],
            "state": (f"broken ({', '.join(lost)} does not run)" if lost else _state(node, fact))
            + (f"; {', '.join(away)} does not answer" if away and "unreachable" not in fact else ""),
            "since": record.get("served_at") or record.get("launched_at") if alive else record.get("stopped_at"),
            "model_id": record.get("model_id") if alive or not goal else goal.spec.model_id,
            "url": f"http://{record['host']}:{record['port']}/v1" if alive else None,
            "pid": (record.get("pid") or None) if alive else None,
            "container": (record.get("container") or None) if alive else None,
            "lock": record.get("lock") if alive else None,
            "key": (record.get("key") or "")[:12] if alive else None,
            "current": goal is not None and not any(_differs(reason, goal) for reason in reasons),
            "ready_seconds": ready.get("seconds"),
            "ttft_seconds": ready.get("ttft"),
            "gates": {gate["id"]: bool(gate["ok"]) for gate in record.get("gates") or ()} if alive else {},
            "protected": bool(record.get("protect")),
        }

    def _print(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            self.outstream.write("no recipe is here to be served\n")
        width = max((len(row["recipe"]) for row in rows), default=0)
        for row in sorted(rows, key=lambda row: (row["state"] == "not running", row["recipe"])):
            since = f" since {units.when(row['since'])}" if row["since"] else ""
            line = f"{row['recipe']:<{width + 2}}{row['cluster'] or row['node']:<10}{row['state']}{since}"
            self.outstream.write(line + "\n")
            if row["url"]:
                age = units.duration(time.time() - row["since"]) if row["since"] else "?"
                lock = (row["lock"] or "?").split("@")
                what = f"container {row['container'][:12]}" if row["container"] else f"process {row['pid']}"
                where = f" on {', '.join(row['nodes'])}" if len(row["nodes"]) > 1 else ""
                self.outstream.write(f"    {row['model_id']} at {row['url']}, {what}{where}, up {age}\n")
                self.outstream.write(f"    from lock {lock[0]} ({lock[-1][:12]}), key {row['key']}")
                self.outstream.write(
                    "" if row["current"] else spoken(f"; the recipe has changed: doit why serve:{row['recipe']}")
                )
                self.outstream.write("; protected\n" if row["protected"] else "\n")


def _differs(reason: Reason, goal: Goal) -> bool:
    """True for a reason that is a changed part of the key, and no remark about one."""
    return reason.part in goal.key.parts and (reason.old, reason.new) != (None, None)


def _state(node: str, fact: dict[str, Any]) -> str:
    record = fact.get("record")
    if "unreachable" in fact:
        return f"unknown ({node} does not answer)"
    if record is None:
        return "not running"
    if fact["alive"]:
        return _living(record, fact)
    if not record.get("ready"):
        return "did not start"
    return "stopped" if record.get("stopped_at") else "dead (was not stopped)"


def _living(record: dict[str, Any], fact: dict[str, Any]) -> str:
    if not record.get("ready"):
        return "starting"
    if not fact["answers"]:
        return f"not answering ({fact.get('problem') or 'does not listen'})"
    return "serving" if record.get("served_at") else "serving, gates not passed"
