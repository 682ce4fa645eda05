"""`doit verify [RECIPE ...]`: are staged data and exports still what was made? Asks the nodes, never the source."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from doit.exceptions import InvalidCommand

from sparkbuild.agent.wire.staging.exports import EXPORT, ExportAsk
from sparkbuild.agent.wire.staging.inventory import INVENTORY, InventoryAsk
from sparkbuild.agent.wire.staging.staged import SCRUB, VERIFY, ScrubAsk, ScrubFolder, StagedAsk
from sparkbuild.agent.wire.verbs import Verb
from sparkbuild.app import verification
from sparkbuild.app.rooms import folder_of
from sparkbuild.app.space.eviction import unread, whose
from sparkbuild.app.spoken import spoken
from sparkbuild.app.verification import Row
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.run import Ask, Event, OnEvent, Progress, Told, call
from sparkbuild.core.screen import complain
from sparkbuild.core.suggest import closest
from sparkbuild.core.units import size, when
from sparkbuild.nodes.ask import everywhere, look_everywhere
from sparkbuild.nodes.unreached import Unreached
from sparkbuild.plugin.adapters.misread import HELP, no_option
from sparkbuild.plugin.adapters.progress import Display, display
from sparkbuild.plugin.commands.base import JSON, FactCommand
from sparkbuild.staging.eviction import Folder, export_folder, folders, stays, workspace

if TYPE_CHECKING:
    from sparkbuild.app.catalog import Catalog
    from sparkbuild.core.goal import Goal
    from sparkbuild.nodes.cluster import Nodes

PREFIX, STAGE = "verify:", "stage:"
LIMIT = "20GB"
Orphan = dict[str, object]  # as `--json` prints it
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)(i?)B?", re.ASCII)
_FULL = {"name": "full", "long": "full", "type": bool, "default": False, "help": "read every byte of every file"}
_SCRUB = {
    "name": "scrub",
    "long": "scrub",
    "type": bool,
    "default": False,
    "help": "read the next part of the data, at idle priority, and go on from there next time",
}
_LIMIT = {
    "name": "limit",
    "long": "limit",
    "default": "",
    "help": f"with --scrub: how much of a node to read [{LIMIT}]",
}


class Verify(FactCommand):
    """The command `verify`."""

    name = "verify"
    needs_tasks = False
    doc_purpose = "look whether staged data and its exports are still what was made"
    doc_usage = "[RECIPE[:NODE[:BLOCK]] ...]"
    doc_description = (
        "Without options a quick look: the stamps of all files, and a sample of their content. Never writes data and"
        " never reads the source. Exit code 0 when all is well, 1 when something is damaged or not staged, 2 when a"
        " node says nothing or a part of the workspace cannot be read."
    )
    cmd_options = (_FULL, _SCRUB, _LIMIT, JSON)

    def _execute(self, full: bool, scrub: bool, limit: str, as_json: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        names = [STAGE + name.removeprefix(PREFIX).removeprefix(STAGE) for name in pos_args or []]
        return verify(self, names, self.outstream, full=full, scrub=scrub, limit=limit, as_json=as_json)


def spelled_as_task(command: FactCommand, words: Sequence[str], out: TextIO) -> int:
    """`doit verify:demo --full`: the same, written as tasks are; the exit code."""
    if HELP.intersection(words):
        out.write(f"{Verify(task_loader=command.loader).help()}\n")
        return 0
    names, options = [], dict[str, Any]()
    rest = iter(words)
    for word in rest:
        option, sep, value = word.partition("=")
        if option == "--limit":
            options["limit"] = value if sep else next(rest, "")
            bytes_of(options["limit"])  # an empty one would be taken for none
        elif word in {"--full", "--scrub"}:
            options[word.removeprefix("--")] = True
        elif word == "--json":
            options["as_json"] = True
        elif word.startswith("-"):
            known = [f"--{one['long']}" for one in Verify.cmd_options]
            raise InvalidCommand(no_option(option, words[0], known, Verify.name))
        elif not word.startswith(PREFIX):
            raise InvalidCommand(
                f"{word} cannot be made along with a look at staged data\n  next:   doit verify RECIPE ..."
            )
        else:
            names.append(STAGE + word.removeprefix(PREFIX))
    return verify(command, names, out, **options)


def verify(
    command: FactCommand,
    names: Sequence[str],
    out: TextIO,
    *,
    full: bool = False,
    scrub: bool = False,
    limit: str = "",
    as_json: bool = False,
) -> int:
    """Look at all nodes at once, print a row for each staged folder; the exit code."""
    if full and scrub:
        raise InvalidCommand("--full reads everything and --scrub the next part: one of them")
    most = bytes_of(limit or LIMIT)
    if limit and not scrub:
        why = "--full reads everything" if full else "a quick look reads a sample"
        raise InvalidCommand(f"--limit goes with --scrub: {why}\n  next:   doit verify --scrub --limit {limit}")
    catalog, nodes = command.catalog, command.opened.nodes
    _refuse_unknown(command, names)
    chosen = command.chosen(names) if names else catalog.goals.by_task.values()
    schemes = ("staged",) if scrub else ("staged", "export")  # a scrub reads content, and an export has none of its own
    goals = [goal for goal in chosen if goal.uri.scheme in schemes]
    by_node: dict[str, list[Goal]] = {}
    for goal in goals:
        by_node.setdefault(goal.node, []).append(goal)
    screen = display(sys.stderr if as_json else out)

    def work(node: str) -> list[Row]:
        look = _Node(nodes, node, screen)
        if scrub:
            return look.scrub(by_node[node], most)
        totals = look.totals(by_node[node]) if full else {}
        return [look.row(goal, totals, full=full) for goal in by_node[node]]

    try:
        seen = everywhere(tuple(by_node), work) if by_node else {}
    finally:
        screen.close()
    rows = {row.task: row for of_node in seen.values() for row in of_node}
    ordered = [rows[goal.task] for goal in goals]
    hurry = any(row.state == verification.SILENT for row in ordered)
    orphans = _orphans(catalog, nodes, tuple(by_node), hurry=hurry) if not names else []
    problems = catalog.names.problems if not names else {}
    code = 2 if problems else verification.code(ordered)
    if as_json:
        found = [row.as_dict() for row in ordered]
        out.write(
            json.dumps({"ok": code == 0, "staged": found, "orphans": orphans}, ensure_ascii=False, indent=1) + "\n"
        )
    else:
        out.writelines(f"{spoken(line)}\n" for line in verification.lines(ordered) or ["nothing is to be staged"])
        out.writelines(f"{one['node']}  {one['text']}\n" for one in orphans)
    for error in problems.values():
        complain(spoken(f"ERROR: {error}"))
    return code


def _refuse_unknown(command: FactCommand, names: Sequence[str]) -> None:
    """Raise InvalidCommand for a name under which nothing is staged. What is broken is told by `command.chosen`."""
    known: dict[str, list[str]] | None = None
    for name in names:
        known = command.known() if known is None else known
        if name in known or "*" in name or command.catalog.problem_for(name) or command.catalog.lacking([name]):
            continue
        asked = name.removeprefix(STAGE)
        places = [one.removeprefix(STAGE) for one in sorted(known) if one.startswith(STAGE)]
        level = [one for one in places if one.count(":") == asked.count(":")]
        close = closest(asked, level) + [one for one in places if asked in one.split(":")]
        what = f"nothing that is staged has the name {asked!r}: there is nothing to verify"
        if asked in command.catalog.workspace.recipes:
            what = f"recipe {asked!r} stages nothing: there is nothing to verify"
        lines = [what]
        if close:
            lines.append(f"  did you mean: {', '.join(PREFIX + one for one in dict.fromkeys(close[:3]))}?")
        lines += ["  wanted: a recipe that stages data, with :NODE and :BLOCK for a part", "  next:   doit verify"]
        raise InvalidCommand("\n".join(lines))


class _Node:
    """The looks at one node, one folder after the other: they share its disk."""

    def __init__(self, nodes: Nodes, node: str, screen: Display) -> None:
        self._nodes, self.node, self.screen = nodes, node, screen
        self._silent = False  # a look was given up, most likely since a disk does not answer: the next ones are soon

    def totals(self, goals: Sequence[Goal]) -> dict[str, int]:
        """How much is in each folder, by its ledger; nothing of a node that does not answer."""
        query = InventoryAsk(dsts=[goal.spec.dst for goal in goals if goal.uri.scheme == "staged"])
        answer = look_everywhere(self._nodes.agent, INVENTORY, {self.node: query})[self.node]
        return {folder["dst"]: folder["total"] for folder in answer["folders"]} if "folders" in answer else {}

    def row(self, goal: Goal, totals: dict[str, int], *, full: bool) -> Row:
        """One folder or export. `totals`: bytes that are to be read of a folder, where that is known."""
        row, spec, key = self._row(goal), goal.spec, goal.key.digest
        began = time.monotonic()
        if goal.uri.scheme == "export":
            query = ExportAsk(dst=spec.dst, key=key, what=spec.what, full=True, hurry=self._silent)
            export = look_everywhere(self._nodes.agent, EXPORT, {self.node: query})[self.node]
            silent = "unreachable" in export
            row = verification.linked(row, goal.key.parts, key, export)
        else:
            request = StagedAsk(dst=spec.dst, key=key, full=full, linked=spec.linked, hurry=self._silent)
            label, total = goal.task.replace(STAGE, PREFIX, 1), totals.get(folder_of(self._nodes, goal))
            staged = self._call(VERIFY, request, label, total)
            silent = "unreachable" in staged
            row = verification.looked(row, goal.key.parts, key, staged)
        self._silent = self._silent or silent
        row.seconds = round(time.monotonic() - began, 3)
        return row

    def scrub(self, goals: Sequence[Goal], most: int) -> list[Row]:
        """All folders, within one limit. Several goals may share a folder."""
        asked = {goal.spec.dst: ScrubFolder(dst=goal.spec.dst, key=goal.key.digest) for goal in goals}
        answer = self._call(SCRUB, ScrubAsk(folders=list(asked.values()), limit=most), f"scrub of {self.node}")
        rows = [(self._row(goal), folder_of(self._nodes, goal)) for goal in goals]
        if "unreachable" in answer:
            return [verification.scrubbed(row, answer) for row, _ in rows]
        folders = {folder["dst"]: folder for folder in answer["folders"]}
        return [verification.scrubbed(row, folders[dst]) for row, dst in rows]

    def _row(self, goal: Goal) -> Row:
        return Row(self.node, goal.task, folder_of(self._nodes, goal), verification.OK)

    def _call(self, verb: Verb[Ask, Told], request: Ask, label: str, total: int | None = None) -> Told | Unreached:
        try:
            return call(self._nodes.agent(self.node), verb, request, self._progress(label, total))
        except SparkbuildError as error:
            return Unreached(unreachable=str(error))
        finally:
            self.screen.end(label)

    def _progress(self, label: str, expected: int | None) -> OnEvent:
        def on_event(event: Event) -> None:
            if event.get("event") == "progress":
                total = expected if event.get("total") is None else int(event["total"])
                self.screen.update(label, Progress(str(event["phase"]), int(event.get("bytes", 0)), total or None))

        return on_event


def _orphans(catalog: Catalog, nodes: Nodes, names: Iterable[str], *, hurry: bool) -> list[Orphan]:
    """What is staged on these nodes and no recipe wants any more."""
    goals = catalog.goals.by_task.values()
    wanted = {(goal.node, folder_of(nodes, goal)) for goal in goals if goal.uri.scheme in {"staged", "export"}}
    queries = {node: InventoryAsk(hurry=hurry) for node in names}
    answers = look_everywhere(nodes.agent, INVENTORY, queries) if queries else {}
    found: list[Orphan] = []

    def unsure(one: Folder) -> bool:
        return one.workspace == workspace(catalog.root) and one.recipe in unread(catalog)

    for node, answer in answers.items():
        if "folders" not in answer:
            continue
        for one in folders(node, answer["folders"]):
            if (node, one.dst) in wanted or unsure(one) or not _is_there(one):
                continue
            used = f"last served {when(one.served_at)}" if one.served_at else "never served"
            text = f"{one.dst}: {size(one.frees)} of {whose(catalog, one)}; {used}{_goes(catalog, one)}"
            found.append({"node": node, "folder": one.dst, "bytes": one.frees, "text": text})
        for export in answer["exports"]:
            one = export_folder(node, export)
            if (node, one.dst) in wanted or unsure(one):
                continue
            made = ", ".join(export["folders"])
            goes = f"it goes when {made} is evicted, or with rm -r" if made else "it goes with rm -r"
            text = f"{one.dst}: export {whose(catalog, one)}; no recipe wants it, {goes} {one.dst}"
            found.append({"node": node, "folder": one.dst, "bytes": 0, "text": text})
    return found


def _goes(catalog: Catalog, one: Folder) -> str:
    """That no recipe wants a folder, and how it goes away; what another workspace staged is not for this one to say."""
    if one.workspace != workspace(catalog.root):
        return ""
    why = stays(one, {}, one.workspace, unread(catalog))
    if why:
        return f"; no recipe wants it, and it is not evicted: {why}"
    by_hand = f"rm -r {shlex.quote(one.dst)} on {one.node}"
    return f"; no recipe wants it: it goes with {by_hand}, and first where doit stage --evict has to make room"


def _is_there(one: Folder) -> bool:
    """Whether anything of a folder in the index is on the node. If not, it stays in the index: its disk may be away."""
    return bool(one.frees or one.kept or one.total or one.busy or one.problem)


def bytes_of(text: str) -> int:
    """A size as people write it, in bytes. Raises InvalidCommand for what is none."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidCommand(f"--limit takes a size such as {LIMIT} or 500MB, and {text or 'nothing'} is none")
    number, prefix, binary = match.groups()
    found = int(float(number) * (1024 if binary else 1000) ** (" kMGT".index(prefix) if prefix else 0))
    if found <= 0:
        raise InvalidCommand("--limit takes a size above 0: nothing would be read")
    return found
