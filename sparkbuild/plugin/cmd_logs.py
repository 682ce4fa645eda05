"""`doit logs RECIPE [-f]`: a lane's own log, kept after its death."""

from __future__ import annotations

from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.plugin.command import FactCommand

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
        goal = self.session.goals.lanes.get(names[0])
        nodes = goal.nodes if goal else (self.session.lane_of_broken(names[0])[0],)
        if not 0 <= rank < len(nodes):
            raise InvalidCommand(f"lane {names[0]} has no rank {rank}: 0 to {len(nodes) - 1}")
        node = nodes[rank]

        def show(event: dict[str, Any]) -> None:
            if event.get("event") == "log":
                self.outstream.write(f"{event['text']}\n")
                self.outstream.flush()

        request = {"recipe": names[0], "lines": lines, "follow": follow}
        self.session.nodes.agent(node).call("tail", request, show)
        return 0
