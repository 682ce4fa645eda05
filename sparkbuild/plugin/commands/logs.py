"""`doit logs RECIPE [-f]`: a lane's own log, kept after its death."""

from __future__ import annotations

from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.agent.wire.lanes import TAIL, LaneAsk, TailAsk
from sparkbuild.core.run import Event, call
from sparkbuild.core.screen import complain
from sparkbuild.plugin.commands.base import FactCommand
from sparkbuild.serving.ranks import look

_FOLLOW = {
    "name": "follow",
    "short": "f",
    "long": "follow",
    "type": bool,
    "default": False,
    "help": "go on as the log grows, until the lane ends",
}
_LINES = {
    "name": "lines",
    "short": "n",
    "long": "lines",
    "type": int,
    "default": 200,
    "help": "how many of the last lines",
}
_RANK = {"name": "rank", "long": "rank", "type": int, "default": 0, "help": "of which rank, where a lane has several"}


class Logs(FactCommand):
    """The command `logs`."""

    name = "logs"
    needs_tasks = False
    doc_purpose = "show the log of a lane"
    doc_usage = "RECIPE"
    doc_description = None
    cmd_options = (_FOLLOW, _LINES, _RANK)

    def get_options(self) -> list[Any]:
        """See doit. Its -f (another dodo file) keeps only its long name here: -f follows, as in tail."""
        options: list[Any] = super().get_options()
        for option in options:
            if option.name == "dodoFile":
                option.short = ""
        return options

    def _execute(self, follow: bool, lines: int, rank: int, pos_args: Any = None) -> int:  # noqa: FBT001
        if len(pos_args or ()) != 1:
            raise InvalidCommand("name one recipe: doit logs <recipe> [-f]")
        names = self.recipes(pos_args)
        goal = self.catalog.goals.lanes.get(names[0])
        if goal and not 0 <= rank < len(goal.nodes):
            raise InvalidCommand(f"lane {names[0]} has no rank {rank}: 0 to {len(goal.nodes) - 1}")
        node = goal.nodes[rank] if goal else self._node_of(names[0], rank)

        def show(event: Event) -> None:
            if event.get("event") == "launch":
                of = ", ".join(event["nodes"] or [node])
                if event["rank"] != rank or (goal and of != ", ".join(goal.nodes)):
                    complain(f"{node}: rank {event['rank']} of a launch on {of}")
            if event.get("event") == "log":
                self.outstream.raw.write(f"{event['text']}\n")  # the engine's own, as it is: who asks for it wants that
                self.outstream.flush()

        call(self.opened.nodes.agent(node), TAIL, TailAsk(recipe=names[0], lines=lines, follow=follow), show)
        return 0

    def _node_of(self, recipe: str, rank: int) -> str:
        """Where a lane has that rank whose recipe cannot be read."""
        nodes = self.opened.stops()[recipe].nodes
        facts = look(self.opened.nodes.agent, nodes, LaneAsk(recipe=recipe, port=0))
        records = {node: record for node, fact in facts.items() if (record := fact.get("record"))}
        found = [node for node, record in records.items() if record.get("rank", 0) == rank]
        if not found and (rank or not records):
            silent = [node for node, fact in facts.items() if "unreachable" in fact]
            more = f"; {', '.join(silent)} cannot be asked" if silent else ""
            raise InvalidCommand(f"rank {rank} of lane {recipe} was never started{more}\n  next:   doit status")
        return max(found or records, key=lambda node: bool(facts[node].get("alive")))
