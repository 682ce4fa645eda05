"""`doit why TASK`: why one task would run, or why it would not."""

from __future__ import annotations

from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.spoken import spoken
from sparkbuild.core import units
from sparkbuild.core.goal import DOWNLOADS
from sparkbuild.core.plan import OK, RUN, Step
from sparkbuild.plugin.commands.base import FactCommand


class Why(FactCommand):
    """The command `why`."""

    name = "why"
    needs_tasks = False
    asks = True
    doc_purpose = "say why a task would run, or why not"
    doc_usage = "TASK [TASK ...]"
    doc_description = "Names each cause as old value -> new value, for the task and for all it stands on."
    cmd_options = ()

    def _execute(self, pos_args: Any = None) -> int:
        if not pos_args:
            raise InvalidCommand("name a task: doit why serve:<recipe>")
        from sparkbuild.app.space import eviction  # noqa: PLC0415 - after the nodes were asked
        from sparkbuild.plugin.commands.planview import Refused  # noqa: PLC0415 - as above

        chosen = self.chosen(pos_args)
        targets = {goal.target for goal in chosen}
        made = self.opened.planned.plan(chosen)
        refusals, refused = self.opened.planned.refusals(made), Refused()
        if any(step.goal.uri.scheme == "staged" and step.state == RUN for step in made):
            made, _ = eviction.told(self.opened.observed, made)
        steps = list(made)
        for step in sorted(steps, key=lambda step: step.goal.target not in targets):
            if not (step.unneeded and step.goal.uri.scheme in DOWNLOADS):  # an image may stand on twenty downloads
                error = refusals.get(step.goal.target)
                self._print(step, refused.lines(step.goal, error) if error is not None else [])
        return 2 if self.tell_problems(pos_args) else 0

    def _print(self, step: Step, refused: list[str]) -> None:
        goal = step.goal
        self.outstream.write(f"{step.state:<8}{goal.task}   {goal.target}\n")
        texts = [reason.text for reason in step.reasons]
        last = self.opened.observed.last(goal)
        if not texts and step.state == OK:
            texts = [step.verdict.told or "its facts are as they should be"]
        texts += refused
        if last is not None:
            cost = units.duration(last.seconds) + (f", {units.size(last.bytes)}" if last.bytes else "")
            texts.append(f"last made {units.when(last.at)} in {cost}, by run {last.run}")
        for text in texts:
            self.outstream.write(spoken(f"       {text}\n"))
        if step.state != OK and not refused and all(reason.part != "room" for reason in step.reasons):
            self.outstream.write(spoken(f"       make it so: doit {goal.task}\n"))
