"""`doit outdated [LOCK ...]`: what upstream has that is newer than the locks and the images of recipes."""

from __future__ import annotations

import json
from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.goals.prebuilt import registry_images
from sparkbuild.app.names import TASK
from sparkbuild.app.pins.outdated import look
from sparkbuild.app.spoken import spoken
from sparkbuild.plugin.commands.base import JSON, FactCommand

_HEAD = ("component", "locked", "newest", "where")


class Outdated(FactCommand):
    """The command `outdated`."""

    name = "outdated"
    needs_tasks = False
    doc_purpose = "show what upstream has that is newer than what is pinned: refs, tags, image tags, wheels"
    doc_usage = "[LOCK|serve:RECIPE ...]"
    doc_description = (
        "Exit code 0 when everything is the newest, 1 when something is newer or could not be asked. Writes nothing;"
        " doit lock:update NAME does."
    )
    cmd_options = (JSON,)

    def _execute(self, as_json: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        workspace = self.catalog.workspace
        locks = workspace.locks
        images = {f"{TASK}{name}": image for name, image in registry_images(workspace).items()}
        for name in pos_args or ():
            if name not in locks and name not in images:
                place = f"recipes/{name.removeprefix(TASK)}" if name.startswith(TASK) else f"locks/{name}"
                problem = workspace.problems.get(place)
                wanted = ", ".join([*locks, *images])
                raise InvalidCommand(str(problem) if problem else f"there is no lock {name!r}\n  wanted: {wanted}")
        names = dict.fromkeys(pos_args or [*locks, *images])
        rows = look(
            self.opened.root,
            self.opened.nodes,
            [locks[name] for name in names if name in locks],
            {name: images[name] for name in names if name in images},
        )
        found = 1 if any(row.state != "ok" for row in rows) else 0
        if as_json:
            self.outstream.write(
                json.dumps({"rows": [row.as_dict() for row in rows]}, ensure_ascii=False, indent=1) + "\n"
            )
        else:
            self._print([(row.name, row.locked, row.shown(), row.where) for row in rows], [row.problem for row in rows])
            updates = dict.fromkeys(update for row in rows for update in row.updates)
            if updates:
                lines = ["what takes what is newer:", *(f"  {update}" for update in updates)]
                self.outstream.write(spoken("\n".join(lines) + "\n"))
        if not pos_args:
            found = 2 if self.tell_problems() else found
        return found

    def _print(self, rows: list[tuple[str, str, str, str]], problems: list[str]) -> None:
        table = [_HEAD, *rows]
        widths = [max(len(row[at]) for row in table) for at in range(3)]
        for row, problem in zip(table, ["", *problems], strict=True):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            self.outstream.write("  ".join([*cells, row[3]]).rstrip() + "\n")
            if problem:
                self.outstream.write(spoken(f"    {problem}\n"))
