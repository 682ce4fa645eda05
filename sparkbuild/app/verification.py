"""What a look at staged data found, folder by folder: one row each, for people and for programs. Pure."""

from __future__ import annotations

import time

import msgspec

from sparkbuild.agent.wire.receipts import Parts
from sparkbuild.agent.wire.staging.exports import ExportFact, NotExported
from sparkbuild.agent.wire.staging.staged import NotStaged, Scrubbed, StagedFact
from sparkbuild.core import units
from sparkbuild.core.reasons import differences
from sparkbuild.core.units import count
from sparkbuild.nodes.unreached import Unreached
from sparkbuild.staging import words
from sparkbuild.staging.exports import ExportSeen
from sparkbuild.staging.staged import StagedSeen

OK, DAMAGED, NOT_STAGED, SILENT, STALE = "ok", "damaged", "not staged", "node silent", "other data"
NOT_MADE = "not made"  # an export
NEVER_READ = "never read"  # by a scrub: nothing is wrong that shows without reading
_WORST = 20  # problems of a folder that are shown


class Row(msgspec.Struct):
    """One staged folder, or one export, on a node: `read` bytes in `seconds`, of `total` bytes that are in it.
    `problems` are lines, `next` the command that mends. `note` says how far a scrub is, or what an export has.
    """

    node: str
    task: str
    folder: str
    state: str
    read: int = 0
    seconds: float = 0.0
    total: int = 0
    problems: list[str] = []
    next: str = ""
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "note"}


def looked(row: Row, parts: Parts, key: str, fact: StagedSeen) -> Row:
    """The row of a folder by what the agent says of it. `parts` and `key` are those that are wanted."""
    if "unreachable" in fact:
        return _silent(row, fact["unreachable"])
    if not fact["present"]:
        return _absent(row, fact, NOT_STAGED, "staged")
    row.total, row.read = fact["bytes"], fact["checked"]["bytes"]
    right = fact["key"] == key and not fact["problems"]
    if right and (closed := words.closed(fact, row.folder)):
        row.note = f"{units.size(row.total)}; {closed}"
    return _held(row, parts, key, fact, "ledger")


def linked(row: Row, parts: Parts, key: str, fact: ExportSeen) -> Row:
    """The row of an export by what the agent says of it. Of its files only names are looked at: their content is that
    of the staged folders, which have rows of their own.
    """
    if "unreachable" in fact:
        return _silent(row, fact["unreachable"])
    if not fact["present"]:
        return _absent(row, fact, NOT_MADE, "made")
    row.note = f"{count(fact['files'], 'file')}, {count(len(fact['mounts']), 'mount')}"
    return _held(row, parts, key, fact, "manifest")


def _absent(row: Row, fact: NotStaged | NotExported, state: str, doing: str) -> Row:
    if problem := fact.get("problem"):
        return _bad(row, DAMAGED, [problem])
    busy = fact.get("busy")
    return _bad(row, state, [f"is being {doing} ({busy})"] if busy else [])


def _held(row: Row, parts: Parts, key: str, fact: StagedFact | ExportFact, record: str) -> Row:
    """The row, held against what is wanted."""
    if fact["key"] != key:
        texts = [reason.text for reason in differences(fact.get("parts") or {}, parts)]
        return _bad(row, STALE, texts or [f"its {record} has another key"])
    if fact["problems"]:
        return _bad(row, DAMAGED, [problem["text"] for problem in fact["problems"]])
    return row


def scrubbed(row: Row, fact: Scrubbed | Unreached) -> Row:
    """The row of a folder by what the scrub says of it."""
    if "unreachable" in fact:
        return _silent(row, fact["unreachable"])
    row.total, row.read, row.seconds = fact["total"], fact["read"], fact["seconds"]
    texts = [problem["text"] for problem in fact["problems"]]
    if fact["state"] == "busy":
        return _bad(row, NOT_STAGED, ["is being staged"])
    if fact["state"] in {"absent", "other"}:
        return _bad(row, NOT_STAGED if fact["state"] == "absent" else STALE, texts)
    row.note = _round(fact)
    if texts:
        return _bad(row, DAMAGED, texts)
    if fact["total"] and not fact["since"] and not fact["round"]:
        row.state = NEVER_READ
    return row


def _round(fact: Scrubbed) -> str:
    if not fact["total"]:
        return ""
    total = units.size(fact["total"])
    if not fact["since"]:  # others were first, and the limit left nothing for this one
        ended = f"; the last round ended {_day(fact['ended'])}" if fact["round"] else ""
        return f"0 % of {total}, its turn comes{ended}"
    share = 100 if fact["done"] >= fact["total"] else min(99, int(100 * fact["done"] / fact["total"]))
    lost = fact["over"] and fact["done"] < fact["total"]
    return f"{share} % of {total}, round began {_day(fact['since'])}" + (
        f" and ended: {units.size(fact['total'] - fact['done'])} could not be read" if lost else ""
    )


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _bad(row: Row, state: str, problems: list[str]) -> Row:
    row.state, row.problems, row.next = state, problems, f"doit {row.task}"
    return row


def _silent(row: Row, text: str) -> Row:
    row.state, row.problems = SILENT, [text]
    return row


def code(rows: list[Row]) -> int:
    """The exit code: 0 all is well, 1 something is damaged or missing, 2 a node says nothing."""
    if any(row.state == SILENT for row in rows):
        return 2
    return 0 if all(row.state in (OK, NEVER_READ) for row in rows) else 1


def lines(rows: list[Row]) -> list[str]:
    """The rows as a table. What is wrong with a silent node is told once, below."""
    place = max((len(row.node) for row in rows), default=0)
    name = max((len(_short(row)) for row in rows), default=0)
    found, silent = [], dict[str, None]()
    for row in rows:
        cost = f"{units.size(row.read):>9} read  {row.seconds:>7.1f} s" if row.state != SILENT else ""
        text = f"{row.node:<{place + 2}}{_short(row):<{name + 2}}{row.state:<12}{cost}"
        found.append(f"{text}  {row.note or (units.size(row.total) if row.total else '')}".rstrip())
        if row.state == SILENT:
            silent |= dict.fromkeys(row.problems)
            continue
        if row.problems:
            found.append(f"    in {row.folder}:")
        found += [f"    {problem}" for problem in row.problems[:_WORST]]
        if len(row.problems) > _WORST:
            found.append(f"    and {len(row.problems) - _WORST} more")
        if row.next:
            found.append(f"    make it so: {row.next}")
    return found + list(silent)


def _short(row: Row) -> str:
    """`recipe:block`: the node has a column of its own."""
    _, recipe, _, *block = row.task.split(":")
    return ":".join((recipe, *block))
