"""`doit plan [TASK...]`: what would run, where, why, and how many bytes would move. Changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.spoken import spoken
from sparkbuild.core import units
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.plugin.commands.base import FactCommand

if TYPE_CHECKING:
    # only as types: this module is loaded before the nodes are asked, and each millisecond before that is waited for
    from sparkbuild.core.goal import Goal
    from sparkbuild.core.plan import Plan, Step
    from sparkbuild.staging.eviction import Eviction

_JSON = {"name": "as_json", "long": "json", "type": bool, "default": False, "help": "print the plan as JSON"}
_VERBOSE = {
    "name": "verbose",
    "short": "v",
    "long": "verbose",
    "type": bool,
    "default": False,
    "help": "show also what is up to date, and the exact command and environment of each lane",
}
_STAGE = {
    "name": "stage",
    "long": "stage",
    "type": str,
    "default": "auto",
    "help": "as for doit serve:<recipe>: auto, skip or force",
}
_EVICT = {
    "name": "evict",
    "long": "evict",
    "type": bool,
    "default": False,
    "help": "as for doit stage:<recipe>: show also which staged data of others would be removed to make room",
}


class PlanCommand(FactCommand):
    """The command `plan`."""

    name = "plan"
    needs_tasks = False
    asks = True
    doc_purpose = "show what would run, where, why, and how many bytes would move"
    doc_usage = "[TASK ...]"
    doc_description = (
        "States: run = stale; ok = up to date; maybe = right by itself, but waits for something stale;"
        " unknown = its node does not answer, or one that decides whether it is needed. Exit code 0 whatever the states"
        " are, 2 when a part of the workspace cannot be read."
    )
    cmd_options = (_JSON, _VERBOSE, _STAGE, _EVICT)

    hopeless = False  # something that would be made cannot be
    short: tuple[Eviction, ...] = ()  # what does not fit, and what would go for it
    routed = ""  # how many bytes of what is staged go which way
    more: tuple[str, ...] = ()  # options that belong to what is named

    def _execute(self, as_json: bool, verbose: bool, stage: str, evict: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        observed, planned = self.opened.observed, self.opened.planned
        self._options(stage, evict=evict, names=pos_args or [])
        from sparkbuild.app.planned import with_refused_images  # noqa: PLC0415 - after the nodes were asked

        made = planned.plan(self.chosen(pos_args or []))
        refusals = planned.refusals(made)
        made = with_refused_images(made, refusals)
        staging = [step for step in made if step.goal.uri.scheme == "staged" and step.state == "run"]
        if evict or staging:
            from sparkbuild.app.space import eviction  # noqa: PLC0415 - only when something is to be staged

            made, self.short = eviction.told(observed, made, evict=evict)
        if any(step.bytes for step in staging):
            from sparkbuild.app.space import routing  # noqa: PLC0415 - as above

            made = routing.told(made, observed.holders, refusals)
            self.routed = routing.total(made)
        if as_json:
            shown: dict[str, Any] = {"goals": [_as_dict(step, refusals.get(step.goal.target)) for step in made]}
            if evict:
                from sparkbuild.app.space import eviction  # noqa: PLC0415 - loaded above

                shown["evict"] = eviction.rows(self.short)
            self.outstream.write(json.dumps(shown, ensure_ascii=False, indent=1) + "\n")
        else:
            if evict:
                from sparkbuild.app.space import eviction  # noqa: PLC0415 - loaded above

                eviction.show(observed, made, self.short, lambda text: self.outstream.write(spoken(f"{text}\n")))
            self._print(made, refusals, verbose=verbose, named=[*(pos_args or []), *self.more])
        return 2 if self.tell_problems(pos_args or ()) else 0

    def _options(self, stage: str, *, evict: bool, names: list[str]) -> None:
        """The options of tasks that change what would be done."""
        if stage != "auto":
            from sparkbuild.app.stagechoice import checked  # noqa: PLC0415 - loaded with the workspace

            checked(stage)
            lanes = [goal for goal in self.chosen(names) if goal.uri.scheme == "lane"]
            if not lanes:
                raise InvalidCommand("--stage is an option of lanes: doit plan serve:<recipe> --stage=...")
            self.opened.observed.choice.choose(lanes, stage)
            self.more += (f"--stage={stage}",)
        if evict:
            if any(name.partition(":")[0] != "stage" for name in names) or not names:
                raise InvalidCommand("--evict is an option of what is staged: doit plan stage:<recipe> --evict")
            self.more += ("--evict",)

    def _print(self, made: Plan, refusals: dict[str, SparkbuildError], *, verbose: bool, named: list[str]) -> None:
        from sparkbuild.core.uri import DOWNLOADS  # noqa: PLC0415 - after the nodes were asked

        downloads = [step for step in made if step.unneeded and step.goal.uri.scheme in DOWNLOADS]
        shown = [step for step in made if step not in downloads and (step.state != "ok" or verbose)]
        width = max((len(step.goal.task) for step in shown), default=4)
        place = max((len(step.goal.node) for step in shown), default=4)
        silent: dict[str, None] = {}
        refused = Refused()
        for step in shown:
            head = f"{step.state:<8}{step.goal.node:<{place + 2}}{step.goal.task:<{width + 2}}"
            amount = "" if step.state == "ok" else units.size(step.bytes) if step.bytes != 0 else ""
            reasons = [reason.text for reason in step.reasons] or [step.verdict.told or "up to date"]
            error = refusals.get(step.goal.target)
            if error is not None and str(error) not in reasons:
                self.hopeless = True
                reasons += refused.lines(step.goal, error)
            lost = [need.task for need in step.goal.needs if need.target in refusals]
            if lost:
                self.hopeless = True
                reasons.append(f"cannot be made without {', '.join(lost)}")
            # what is wrong with a node is told once, below, and not with each goal on it
            silent |= dict.fromkeys(text for text in reasons if step.state == "unknown" and "\n" in text)
            reasons = [spoken(text.splitlines()[0]) for text in reasons]
            self.outstream.write(f"{head}{amount:>9}  {reasons[0]}\n")
            for text in reasons[1:]:
                self.outstream.write(f"{'':<{len(head) + 11}}{text}\n")
            if verbose and step.goal.uri.scheme == "lane":
                self._print_launch(step)
        self.hopeless = self.hopeless or any(step.state == "unknown" for step in made)
        self.hopeless = self.hopeless or any(one.chosen is None for one in self.short)
        for text in silent:
            self.outstream.write(spoken(f"{text}\n"))
        self._print_sum(made, named)

    def _print_launch(self, step: Step) -> None:
        kind: Any = self.opened.observed.kinds["lane"]
        try:
            launches = kind.launches_of(step.goal)
        except SparkbuildError:
            return  # said among the reasons
        for rank, launch in launches:
            if len(launches) > 1:
                fabric = rank.fabric
                self.outstream.write(f"    rank {rank.rank} on {rank.node}, {fabric.address} ({fabric.interface})\n")
                self.outstream.write(f"        fabric {fabric.network}: {fabric.origin}\n")
            self.outstream.write(f"        argv {json.dumps(list(launch.argv), ensure_ascii=False)}\n")
            for name, value in launch.shown_env().items():
                origin = f"    # {launch.origins[name]}" if name in launch.origins else ""
                shown = json.dumps(value, ensure_ascii=False) if "\n" in value else value
                self.outstream.write(f"        env  {name}={shown}{origin}\n")
            for name in launch.secrets:
                if name not in launch.env:
                    self.outstream.write(f"        secret {name} as the file /run/secrets/{name}\n")
            for bind in launch.mounts:
                how = "read-only" if bind.read_only else "writable"
                self.outstream.write(f"        mount {bind.source} at {bind.target}, {how}\n")
            for name in launch.pending:
                self.outstream.write(f"        mounts of export {name}: known once it is staged\n")

    def _print_sum(self, made: Plan, named: list[str]) -> None:
        from sparkbuild.core.uri import DOWNLOADS  # noqa: PLC0415 - as above

        told = [step for step in made if not (step.waits and step.goal.uri.scheme in DOWNLOADS)]  # as in the rows
        counts = {state: sum(step.state == state for step in told) for state in ("run", "maybe", "unknown", "ok")}
        text = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing selected"
        stale = made.stale
        if not stale:
            self.outstream.write(f"nothing to do: {text}\n")
            return
        known = sum(step.bytes or 0 for step in stale)
        unknown = any(step.bytes is None for step in stale)
        if known or unknown:
            text += (
                f"; {'at least ' if unknown and known else ''}{units.size(known) if known else 'unknown bytes'} to move"
            )
        text += f", {self.routed}" if self.routed else ""
        last = [self.opened.observed.last(step.goal) for step in stale]
        if all(last):
            text += f"; last time this took {units.duration(sum(made.seconds for made in last if made))}"
        self.outstream.write(f"{text}\n")
        if named and not self.hopeless:
            command = f"doit {' '.join(named)}"
            if self.short and "--evict" not in named:
                from sparkbuild.app.space import shortage  # noqa: PLC0415 - loaded by what made it short

                command = shortage.command(self.short, named)
            self.outstream.write(spoken(f"make it so:  {command}\n"))


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


def _as_dict(step: Step, error: SparkbuildError | None) -> dict[str, Any]:
    found = step.as_dict(f"doit {step.goal.task}")
    return found if error is None else {**found, "refused": error.as_dict()}
