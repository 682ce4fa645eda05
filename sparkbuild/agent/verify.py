"""Is what was staged still there, and still the same? Answered from the ledger beside it, never from the source.

Quick, on every serve: each file's stamp (with ctime) as it was when its content was last proven, and a few chunks read
afresh: head and tail of each file, at most 8 of these per folder, and random ones, 4 per file and at most 16 (64 MiB)
per folder in all. A stamp that moved costs one re-hash of that file. Stamps find whatever went through the file
system; the samples are for what did not (a bad disk, a restored image), and being drawn anew each time they look
elsewhere on every serve. Nothing is written down of where they looked: `scrub` is what reads everything in turn.
Folders below 1 MiB are sampled only in proportion to their size (1 in 64 at least), so that a thousand small ones cost
no thousand disk seeks.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from sparkbuild.agent import content, digest, evicted, folder, ledger, links, owned, stamps
from sparkbuild.agent.content import Found, Moved
from sparkbuild.agent.digest import CHUNK
from sparkbuild.agent.files import inside
from sparkbuild.agent.ledger import Ledger, Record
from sparkbuild.agent.protocol import AgentError, Reporter
from sparkbuild.agent.shape import Shape
from sparkbuild.agent.titles import Titles

if TYPE_CHECKING:
    from sparkbuild.agent.archives import Archives
    from sparkbuild.agent.wanted import Wish

_RANDOM = 4  # chunks per file, besides head and tail
_SAMPLES = 16  # chunks per folder
_ENDS = 8  # of these, heads and tails
_SMALL = 1 << 20  # bytes of a folder that is always sampled
_RARELY = 64
_NOTHING = {"bytes": 0, "chunks": 0, "whole": ()}


def observe(query: dict[str, Any], moved: Moved | None = None) -> dict[str, Any]:
    """Query {"store", "dst", "key", "full", "linked", "what"}; see `_fact` for the answer. Content is only looked at
    when the ledger has that key (an empty or missing key is any).

    Without a ledger {"present": false, "busy": who is staging it now or "", "problem": why it cannot be read,
    "evicted": see `evicted.told`}. Then, and with another key, "to_write" is what staging would write, "wanted" all
    that it would have in the folder, and "about" what the source is, if the query has "what" (see `wanted.of_request`)
    and the source is there; of the source only tables of contents are read. "refused" says why it cannot be staged, see
    `_expected`; also where something is to be mended.
    """
    dst = inside(query.get("store", ""), query["dst"])
    if query.get("key") and not query.get("full"):
        still = stamps.unmoved(dst, query["key"])
        if still is not None and still[0] < _SMALL and not _sampled(still[0]):
            fact = {"present": True, "key": query["key"], "bytes": still[0], "about": still[1], "to_write": 0}
            return {**fact, "problems": [], "checked": dict(_NOTHING)}
    try:
        made = ledger.read(dst)
    except ledger.LedgerError as error:
        text = f"the ledger in {dst} is unreadable: {error}"
        return {"present": False, "busy": "", "problem": text, **_expected(query, None)}
    if made is None:
        gone = evicted.told(query.get("store", ""), dst)
        return {"present": False, "busy": folder.busy(dst), **gone, **_expected(query, None)}
    if query.get("key") not in (None, "", made.key):
        return {**_fact(made, [], _Checked()), **_expected(query, made)}
    fact = _Look(dst, made, moved or (lambda _size: None), query).result()
    return {**fact, "refused": _expected(query, made)["refused"]} if fact["problems"] else fact


def _expected(query: dict[str, Any], made: Ledger | None) -> dict[str, Any]:
    """{"to_write": bytes, "wanted": bytes, "about": what the source is found to be, "refused": the fields of the error
    that staging would end with, and its "part", "dst" or "source"; {} when it can be staged}. None, no "wanted" and {}
    when the source cannot say.
    """
    nothing: dict[str, Any] = {"to_write": None, "about": {}, "refused": {}}
    if "what" not in query:
        return nothing
    from sparkbuild.agent import wanted  # noqa: PLC0415 - most looks find a ledger
    from sparkbuild.agent.archives import Archives  # noqa: PLC0415

    dst = inside(query.get("store", ""), query["dst"])
    blocked = owned.conflict(query, dst) or folder.in_the_way(dst)
    if blocked is not None:
        return {**nothing, "refused": {**blocked.fields, "part": "dst"}}
    known = {record.name: record for record in made.files} if made else {}
    archives = Archives()
    try:
        wish = wanted.of_request(query, archives)
        refused = _strangers(dst, wish, made, archives)
    except (AgentError, OSError) as error:
        if query["what"].get("kind") == "artifact":
            return nothing  # not fetched yet
        return {**nothing, "refused": {**_fields(error, query.get("store", "")), "part": "source"}}
    finally:
        archives.close()
    sizes = {item.name: Shape(item.size, item.extents).data for item in wish.files}
    new = sum(sizes[item.name] for item in wish.files if not item.is_in(known.get(item.name)))
    return {"to_write": new, "wanted": sum(sizes.values()), "about": wish.about, "refused": refused}


def _strangers(dst: str, wish: Wish, made: Ledger | None, archives: Archives) -> dict[str, str]:
    """The "refused" for files of others that staging would not replace, as far as a glance tells; {} for none."""
    if not os.path.isdir(dst):
        return {}
    from sparkbuild.agent import strangers  # noqa: PLC0415 - most folders are not there, or have a ledger
    from sparkbuild.agent.draft import Draft  # noqa: PLC0415
    from sparkbuild.agent.foreign import Adopter  # noqa: PLC0415

    draft = Draft(dst)
    owner = owned.read(dst)
    damaged = made is None and os.path.lexists(ledger.path_of(dst))
    if damaged or (made is None and not draft.is_there() and owner is not None and owner.staged_at > 0):
        return {}  # the ledger is lost: what is there was staged
    ours = {*draft.read(), *(link.name for link in draft.read_links())}
    if made is not None:
        ours |= {record.name for record in made.files} | {link.name for link in made.links}
    adopter = Adopter(
        digest.best(), full=False, opener=lambda item: archives.source(item.source), moved=lambda _n: None
    )
    found = strangers.in_the_way(dst, wish, ours, strangers.glance(adopter))
    return {**strangers.refused(dst, found).fields, "part": "dst"} if found else {}


def _fields(error: AgentError | OSError, store: str) -> dict[str, str]:
    if isinstance(error, AgentError):
        return error.fields
    from sparkbuild.agent import oserrors  # noqa: PLC0415 - only for a message

    return oserrors.fields_of(error, store)


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "dst", "key", "full": true}; the fact as result. `full` reads every chunk of every file."""
    guard, done = threading.Lock(), 0
    wanted = dict(request, full=request.get("full", True))

    def moved(size: int) -> None:
        nonlocal done
        with guard:
            done += size
            reporter.progress("verify", done, None)

    return observe(wanted, moved)


class _Checked:
    """How the answer was come by: bytes and chunks read, files that were read whole."""

    def __init__(self) -> None:
        self.bytes = self.chunks = 0
        self.whole: list[str] = []


def _fact(made: Ledger, problems: list[dict[str, Any]], checked: _Checked) -> dict[str, Any]:
    """{"present", "key", "parts", "about", "bytes": of data in all files, "problems": [{"file", "text", "bytes": to be
    written again}], "to_write": sum of these, "checked": {"bytes", "chunks", "whole": [names]}}.
    """
    return {
        "present": True,
        "key": made.key,
        "parts": made.parts,
        "about": made.about,
        "bytes": made.total,
        "problems": problems,
        "to_write": sum(problem["bytes"] for problem in problems),
        "checked": {"bytes": checked.bytes, "chunks": checked.chunks, "whole": checked.whole},
    }


class _Look:
    """One look at one folder."""

    def __init__(self, dst: str, made: Ledger, moved: Moved, query: dict[str, Any]) -> None:
        self.dst, self.made, self.moved = dst, made, moved
        self.full, self.linked = bool(query.get("full")), bool(query.get("linked"))
        self.guard = threading.Lock()
        self.checked = _Checked()
        self.problems: list[dict[str, Any]] = []
        self.known = stamps.read(dst, made)
        self.proven: dict[str, stamps.Stamp] = {}
        self.titles = Titles(made.links)

    def result(self) -> dict[str, Any]:
        trusted = [record for record in self.made.files if self._file(record)]
        for record in self._sample(trusted):
            del self.proven[record.name]  # its stamp lies, so that staging reads all of it as well
            self._read_whole(record, remember=False)
        for link in self.made.links:
            text = links.problem(self.dst, link)
            if text:
                self.problems.append({"file": link.name, "text": text, "bytes": 0})
        if self.proven != self.known:
            stamps.write(self.dst, self.made, self.proven)
        return _fact(self.made, self.problems, self.checked)

    def _file(self, record: Record) -> bool:
        """Look at one file; True when its stamp says that nobody touched it."""
        found, text = content.standing(f"{self.dst}/{record.name}")
        if found is None:
            self._problem(record, text, record.data)
            return False
        if found.st_nlink > 1 and not self.linked:
            text = f"has {found.st_nlink} names (hard links): a write to another one would change it"
            self._problem(record, text, record.data)
            return False
        stamp = stamps.of(found)
        if self.full or self.known.get(record.name) != stamp or found.st_size != record.size:
            stamps.let_settle(found)
            self._read_whole(record)
            return False
        self.proven[record.name] = stamp
        return True

    def _read_whole(self, record: Record, *, remember: bool = True) -> None:
        found = content.check(f"{self.dst}/{record.name}", record, self._moved)
        self.checked.whole.append(record.name)
        if found.text:
            self._problem(record, found.text, _bytes_of(record, found))
        elif found.stat is not None and remember:
            self.proven[record.name] = stamps.of(found.stat)
        elif not remember:  # right when read again: a cable or memory fault, not to be passed over in silence
            self._problem(record, "was read wrong once and right once: check the disk of this node", 0)

    def _sample(self, files: list[Record]) -> list[Record]:
        """Read a few chunks of files whose stamps are right; returns the files that had a wrong one."""
        picks = _picks(files)
        buffer = bytearray(min(CHUNK, max((record.size for record, _ in picks), default=0)))
        wrong: dict[str, Record] = {}
        for record, index in picks:
            try:
                with content.opened(f"{self.dst}/{record.name}") as pages:
                    right = content.chunk_is_right(pages, record, index, buffer, self._moved)
            except OSError:
                right = False
            if not right:
                wrong[record.name] = record
        return list(wrong.values())

    def _moved(self, size: int) -> None:
        with self.guard:  # two readers call this
            self.checked.bytes += size
            self.checked.chunks += 1
        self.moved(size)

    def _problem(self, record: Record, text: str, size: int) -> None:
        self.problems.append({"file": record.name, "text": f"{self.titles.of(record.name)} {text}", "bytes": size})


def _bytes_of(record: Record, found: Found) -> int:
    shape = Shape(record.size, record.extents)
    return sum(map(shape.weight, found.bad))


def _picks(files: list[Record]) -> list[tuple[Record, int]]:
    """Chunks to read afresh: head and tail of each file, and random ones, cut down at random to what a folder may cost.

    Heads and tails have half of the places, so that with up to 4 files all of them are read each time.
    """
    files = [record for record in files if record.size]
    if not files:
        return []
    if digest.function(files[0].digest) is None:
        return []  # cannot be computed here: stamps alone, and sha256 when one moves
    ends: list[tuple[Record, int]] = []
    others: list[tuple[Record, int]] = []
    for record in files:
        filled = (
            list(Shape(record.size, record.extents).with_data()) if record.extents else range(digest.count(record.size))
        )
        last = len(filled) - 1
        ends += [(record, filled[at]) for at in {0, last}]
        others += [(record, filled[at]) for at in {_random(last + 1) for _ in range(_RANDOM)} - {0, last}]
    ends = _drawn(ends, _ENDS)
    return ends + _drawn(others, _SAMPLES - len(ends))


def _drawn(picks: list[tuple[Record, int]], most: int) -> list[tuple[Record, int]]:
    """So many of them at most, at random."""
    while len(picks) > most:
        picks[_random(len(picks))] = picks[-1]
        picks.pop()
    return picks


def _sampled(total: int) -> bool:
    """Whether a small folder is sampled this time: in proportion to its size."""
    return _random(_SMALL) < max(total, _SMALL // _RARELY)


def _random(below: int) -> int:
    return int.from_bytes(os.urandom(8), "big") % below  # the module `random` takes longer to import than the look
