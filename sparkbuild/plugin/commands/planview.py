"""What `doit plan` shows: a row for each step, why some cannot be made, what would be removed, and the sum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.planned import with_refused_images
from sparkbuild.app.space import eviction, routing, shortage
from sparkbuild.app.spoken import spoken
from sparkbuild.app.stagechoice import checked
from sparkbuild.core import units
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import DOWNLOADS, Goal
from sparkbuild.core.plan import Plan, Step
from sparkbuild.plugin.commands.base import FactCommand
from sparkbuild.staging.eviction import Eviction


class PlanView:
    """The plan for what is named."""

    def __init__(self, command: FactCommand, names: Sequence[str], *, verbose: bool) -> None:
        self._command, self._names, self._verbose = command, names, verbose
        self._observed, self._planned = command.opened.observed, command.opened.planned
        self._out = command.outstream
        self._short: tuple[Eviction, ...] = ()  # what does not fit, and what would go for it
        self._routed = ""  # how many bytes of what is staged go which way
        self._more: list[str] = []  # options that belong to what is named
        self._evict = False

    def take_options(self, stage: str, *, evict: bool) -> None:
        """The options of tasks that change what would be done. Raises InvalidCommand where they do not belong."""
        if stage != "auto":
            checked(stage)
            lanes = [goal for goal in self._command.chosen(self._names) if goal.uri.scheme == "lane"]
            if not lanes:
                raise InvalidCommand("--stage is an option of lanes: doit plan serve:<recipe> --stage=...")
            self._observed.choice.choose(lanes, stage)
            self._more.append(f"--stage={stage}")
        if evict:
            if any(name.partition(":")[0] != "stage" for name in self._names) or not self._names:
                raise InvalidCommand("--evict is an option of what is staged: doit plan stage:<recipe> --evict")
            self._more.append("--evict")
        self._evict = evict

    def show(self, *, as_json: bool) -> None:
        """Plan, and print."""
        plan = self._planned.plan(self._command.chosen(self._names))
        refusals = self._planned.refusals(plan)
        plan = with_refused_images(plan, refusals)
        staging = [step for step in plan if step.goal.uri.scheme == "staged" and step.state == "run"]
        if self._evict or staging:
            plan, self._short = eviction.told(self._observed, plan, evict=self._evict)
        if any(step.bytes for step in staging):
            plan = routing.told(plan, self._observed.holders, refusals)
            self._routed = routing.total(plan)
        if as_json:
            shown = {"goals": [_as_dict(step, refusals.get(step.goal.target)) for step in plan]}
            if self._evict:
                shown["evict"] = eviction.rows(self._short)
            self._out.write(json.dumps(shown, ensure_ascii=False, indent=1) + "\n")
            return
        if self._evict:
            eviction.show(self._observed, plan, self._short, lambda text: self._out.write(spoken(f"{text}\n")))
        self._print(plan, refusals)

    def _print(self, plan: Plan, refusals: dict[str, SparkbuildError]) -> None:
        shown = [step for step in plan if (step.state != "ok" or self._verbose) and not _is_unneeded(step)]
        width = max((len(step.goal.task) for step in shown), default=4)
        place = max((len(step.goal.node) for step in shown), default=4)
        silent: dict[str, None] = {}
        refused, hopeless = Refused(), False
        for step in shown:
            head = f"{step.state:<8}{step.goal.node:<{place + 2}}{step.goal.task:<{width + 2}}"
            amount = "" if step.state == "ok" else units.size(step.bytes) if step.bytes != 0 else ""
            reasons = [reason.text for reason in step.reasons] or [step.verdict.told or "up to date"]
            error = refusals.get(step.goal.target)
            if error is not None and str(error) not in reasons:
                hopeless = True
                reasons += refused.lines(step.goal, error)
            lost = [need.task for need in step.goal.needs if need.target in refusals]
            if lost:
                hopeless = True
                reasons.append(f"cannot be made without {', '.join(lost)}")
            # what is wrong with a node is told once, below, and not with each goal on it
            silent |= dict.fromkeys(text for text in reasons if step.state == "unknown" and "\n" in text)
            reasons = [spoken(text.splitlines()[0]) for text in reasons]
            self._out.write(f"{head}{amount:>9}  {reasons[0]}\n")
            for text in reasons[1:]:
                self._out.write(f"{'':<{len(head) + 11}}{text}\n")
            if self._verbose and step.goal.uri.scheme == "lane":
                self._print_launch(step)
        hopeless = hopeless or any(step.state == "unknown" for step in plan)
        hopeless = hopeless or any(eviction.chosen is None for eviction in self._short)
        for text in silent:
            self._out.write(spoken(f"{text}\n"))
        self._print_sum(plan, hopeless=hopeless)

    def _print_launch(self, step: Step) -> None:
        kind: Any = self._observed.kinds["lane"]
        try:
            launches = kind.launches_of(step.goal)
        except SparkbuildError:
            return  # said among the reasons
        for rank, launch in launches:
            if len(launches) > 1:
                fabric = rank.fabric
                self._out.write(f"    rank {rank.rank} on {rank.node}, {fabric.address} ({fabric.interface})\n")
                self._out.write(f"        fabric {fabric.network}: {fabric.origin}\n")
            self._out.write(f"        argv {json.dumps(list(launch.argv), ensure_ascii=False)}\n")
            for name, value in launch.shown_env().items():
                origin = f"    # {launch.origins[name]}" if name in launch.origins else ""
                shown = json.dumps(value, ensure_ascii=False) if "\n" in value else value
                self._out.write(f"        env  {name}={shown}{origin}\n")
            for name in launch.secrets:
                if name not in launch.env:
                    self._out.write(f"        secret {name} as the file /run/secrets/{name}\n")
            for bind in launch.mounts:
                how = "read-only" if bind.read_only else "writable"
                self._out.write(f"        mount {bind.source} at {bind.target}, {how}\n")
            for name in launch.pending:
                self._out.write(f"        mounts of export {name}: known once it is staged\n")

    def _print_sum(self, plan: Plan, *, hopeless: bool) -> None:
        told = [step for step in plan if not (step.waits and step.goal.uri.scheme in DOWNLOADS)]  # as in the rows
        counts = {state: sum(step.state == state for step in told) for state in ("run", "maybe", "unknown", "ok")}
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing selected"
        stale = plan.stale
        if not stale:
            self._out.write(f"nothing to do: {text}\n")
            return
        known = sum(step.bytes or 0 for step in stale)
        unknown = any(step.bytes is None for step in stale)
        if known or unknown:
            text += (
                f"; {'at least ' if unknown and known else ''}{units.size(known) if known else 'unknown bytes'} to move"
            )
        text += f", {self._routed}" if self._routed else ""
        last = [self._observed.last(step.goal) for step in stale]
        if all(last):
            text += f"; last time this took {units.duration(sum(entry.seconds for entry in last if entry))}"
        self._out.write(f"{text}\n")
        named = [*self._names, *self._more]
        if named and not hopeless:
            command = f"doit {' '.join(named)}"
            if self._short and "--evict" not in named:
                command = shortage.command(self._short, named)
            self._out.write(spoken(f"make it so:  {command}\n"))


def _is_unneeded(step: Step) -> bool:
    """A download of something that is complete: an image may stand on twenty."""
    return step.unneeded and step.goal.uri.scheme in DOWNLOADS


class Refused:
    """Why steps cannot be made, as lines: what several of them fail of is told in full for the first."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], Goal] = {}

    def lines(self, goal: Goal, error: SparkbuildError) -> list[str]:
        """The lines for one of them."""
        where = error.where.removeprefix(f"node {goal.node}, ")
        first = self._first.setdefault((error.what, where, error.found, error.wanted, error.next), goal)
        if first is goal or not where:
            return ["cannot be made so:", *(f"  {line}" for line in str(error).splitlines())]
        return [f"cannot be made so, as {first.task}: {error.what}: {where}"]


def _as_dict(step: Step, error: SparkbuildError | None) -> dict[str, object]:
    shown = step.as_dict(f"doit {step.goal.task}")
    return shown if error is None else {**shown, "refused": error.as_dict()}
