"""Is what was staged still there, and still the same? Answered from the ledger beside it, never from the source.

Quick, on every serve: each file's stamp (with ctime) as it was when its content was last proven, and a little of it
read afresh: the 64 KiB at its head and its tail, and random chunks, 4 per file and at most 16 (64 MiB) per folder.
Where heads and tails would be more than 512 reads, it is as many, others each time. A stamp that moved costs one re-
hash of that file. Stamps find whatever went through the file system; the samples are for what did not (a bad disk, a
restored image), and being drawn anew each time they look elsewhere on every serve. Nothing is written down of where
they looked: `scrub` is what reads everything in turn.
Folders below 1 MiB are sampled only in proportion to their size (1 in 64 at least), so that a thousand small ones cost
no thousand disk seeks.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.ledger import content, digest, evicted, folder, ledger, links, modes, stamps, way
from sparkbuild.agent.ledger.access import Access
from sparkbuild.agent.ledger.content import Found, Moved, Piece
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.index import before
from sparkbuild.agent.ledger.ledger import Ledger, Record
from sparkbuild.agent.ledger.shape import END, Shape
from sparkbuild.agent.ledger.titles import Titles
from sparkbuild.agent.source import overlap
from sparkbuild.agent.stage.streams import each
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import Expected, NotStaged, Problem, StagedFact, StagedQuery

_RANDOM = 4  # chunks per file
_SAMPLES = 16  # chunks per folder
_ENDS = 512  # heads and tails per folder, and small files as a whole; at most 64 MiB
_READERS = 4  # of heads and tails: each waits for the disk most of the time
_SMALL = 1 << 20  # bytes of a folder that is always sampled
_RARELY = 64


def observe(query: StagedQuery, moved: Moved | None = None) -> StagedFact | NotStaged:
    """Content is only looked at when the ledger has the key. What staging would do is told where it has another or is
    not there, why it would be refused also where something is to be mended; of the source only tables of contents are
    read.
    """
    store = query.get("store", "")
    dst = inside(store, query["dst"])
    if query.get("key") and not query.get("full") and not query.get("source"):
        still = stamps.unmoved(dst, query["key"])
        if still is not None and still.bytes < _SMALL and not _sampled(still.bytes):
            return {
                "present": True,
                "key": query["key"],
                "bytes": still.bytes,
                "about": still.about,
                "to_write": 0,
                "problems": [],
                "checked": {"bytes": 0, "chunks": 0, "whole": []},
                "closed": still.closed,
            }
    try:
        recorded = ledger.read(dst)
    except ledger.LedgerError as error:
        text = f"the ledger in {dst} is unreadable: {error}"
        fact = _not_staged(query, "")
        fact["problem"] = text
        return fact
    if recorded is None:
        fact = _not_staged(query, folder.busy(dst))
        fact["begun"] = os.path.lexists(Draft(dst).path)
        if eviction := evicted.told(store, dst):
            fact["evicted"] = eviction
        if last := before(store, query.get("of", ""), dst):
            fact["before"], fact["here"] = last, last == dst
        return fact
    if query.get("key") not in (None, "", recorded.key):
        return {**_fact(recorded, [], _Checked(), 0), **_expected(query, recorded)}
    seen = _Look(dst, recorded, moved or (lambda _size: None), query).result()
    names = [record.name for record in recorded.files]
    seen["closed"] = modes.closed(dst, (*way.steps(names), *names))
    if seen["problems"] or query.get("source"):
        seen["refused"] = _expected(query, recorded)["refused"]
    return seen


def _not_staged(query: StagedQuery, busy: str) -> NotStaged:
    # mypy wants to be told of each key that an Expected has not, and a NotStaged may have
    return {"present": False, "busy": busy, **_expected(query, None)}  # type: ignore[typeddict-item]


def _expected(query: StagedQuery, recorded: Ledger | None) -> Expected:
    from sparkbuild.agent.stage import forecast  # noqa: PLC0415 - 5 ms, and most looks find all as it should be

    return forecast.expected(query, recorded)


def run(request: StagedQuery, reporter: Reporter) -> StagedFact | NotStaged:
    """As `observe`; `full` unless it says otherwise."""
    guard, done = threading.Lock(), 0
    query: StagedQuery = {**request, "full": request.get("full", True)}

    def moved(size: int) -> None:
        nonlocal done
        with guard:
            done += size
            reporter.progress("verify", done, None)

    if request.get("hurry"):
        patience.hurry()
    with patience.watched(reporter, bound=patience.LOOK):
        dst = inside(request.get("store", ""), request["dst"])
        return patience.bounded(lambda: observe(query, moved), about=dst)


class _Checked:
    """How the answer was come by: bytes and chunks read, files that were read whole."""

    def __init__(self) -> None:
        self.bytes = self.chunks = 0
        self.whole: list[str] = []


def _fact(recorded: Ledger, problems: list[Problem], checked: _Checked, beside: int) -> StagedFact:
    return {
        "present": True,
        "key": recorded.key,
        "parts": recorded.parts,
        "about": recorded.about,
        "bytes": recorded.total,
        "problems": problems,
        "to_write": sum(problem["bytes"] for problem in problems),
        "beside": beside,
        "checked": {"bytes": checked.bytes, "chunks": checked.chunks, "whole": checked.whole},
    }


class _Look:
    """One look at one folder."""

    def __init__(self, dst: str, recorded: Ledger, moved: Moved, query: StagedQuery) -> None:
        self.dst, self.made, self.moved, self.query = dst, recorded, moved, query
        self.access = Access(query.get("store", ""), dst)
        self.full, self.linked = bool(query.get("full")), bool(query.get("linked"))
        self.guard = threading.Lock()
        self.checked = _Checked()
        self.problems: list[Problem] = []
        self.beside = 0
        self.known = stamps.read(dst, recorded)
        self.proven: dict[str, stamps.Stamp] = {}
        self.titles = Titles(recorded.links)
        names = (*(record.name for record in recorded.files), *(link.name for link in recorded.links))
        self.detours = way.detours(dst, names)

    def result(self) -> StagedFact:
        trusted = [record for record in self.made.files if self._file(record)]
        for record in self._sample(trusted):
            del self.proven[record.name]  # its stamp lies, so that staging reads all of it as well
            self._read_whole(record, remember=False)
        for link in self.made.links:
            step = way.behind(link.name, self.detours)
            text = links.problem(self.dst, link)
            if step:
                text = f"{link.name} {way.out_of_place(self.dst, step, self.detours[step])}"
            if text:
                self.problems.append({"file": link.name, "text": text, "bytes": 0})
        if self.proven != self.known:
            stamps.write(self.dst, self.made, self.proven)
        return _fact(self.made, self.problems, self.checked, self.beside)

    def _file(self, record: Record) -> bool:
        """Look at one file; True when its stamp says that nobody touched it."""
        step = way.behind(record.name, self.detours)
        if step:
            self._problem(record, way.out_of_place(self.dst, step, self.detours[step]), 0)
            return False
        status, text = content.standing(f"{self.dst}/{record.name}")
        if status is None:
            self._problem(record, text, record.data)
            return False
        if status.st_nlink > 1 and not self.linked:
            text = f"has {status.st_nlink} names (hard links): a write to another one would change it"
            self.beside += status.st_blocks * 512
            self._problem(record, text, record.data)
            return False
        stamp = stamps.of(status)
        text, size = self.access.problem(status), 0 if self.access.can_mend(status) else record.data
        if not text and status.st_nlink > 1 and self.known.get(record.name) != stamp:
            is_source = overlap.was_read_from(status, record, self.query.get("what"), self.query.get("store", ""))
            text, size = "is a hard link of its source: a write to one changes both" if is_source else "", record.data
        if text:
            self._problem(record, text, size)
            return False
        if self.full or self.known.get(record.name) != stamp or status.st_size != record.size:
            stamps.let_settle(status)
            self._read_whole(record)
            return False
        self.proven[record.name] = stamp
        return True

    def _read_whole(self, record: Record, *, remember: bool = True) -> None:
        checked = content.check(f"{self.dst}/{record.name}", record, self._moved)
        self.checked.whole.append(record.name)
        if checked.text:
            self._problem(record, checked.text, self._to_mend(record, checked))
        elif checked.stat is not None and remember:
            self.proven[record.name] = stamps.of(checked.stat)
        elif not remember:  # right when read again: a cable or memory fault, not to be passed over in silence
            self._problem(record, "was read wrong once and right once: check the disk of this node", 0)

    def _to_mend(self, record: Record, checked: Found) -> int:
        """Bytes that mending writes: what has more names is left to these, and is made anew beside them."""
        there, _ = content.standing(f"{self.dst}/{record.name}")
        if there is None or there.st_nlink == 1:
            return _bytes_of(record, checked)
        self.beside += there.st_blocks * 512
        return record.data

    def _sample(self, files: list[Record]) -> list[Record]:
        """Read a little of files whose stamps are right; returns the files where it was wrong."""
        near, far = _picks(files)
        wrong = {record.name: record for record in each(_READERS, near, self._wrong, threading.Event()) if record}
        buffer = memoryview(bytearray(min(CHUNK, max((end - first for _, first, end, _ in far), default=0))))
        wrong |= {record.name: record for piece in far if (record := self._wrong(piece, buffer))}
        return list(wrong.values())

    def _wrong(self, piece: Piece, buffer: memoryview) -> Record | None:
        """The file, when this piece of it is not what was staged."""
        try:
            with content.opened(f"{self.dst}/{piece.record.name}", scattered=True) as pages:
                right = content.is_right(pages, piece, buffer, self._moved)
        except OSError:
            right = False
        return None if right else piece.record

    def _moved(self, size: int) -> None:
        with self.guard:  # two readers call this
            self.checked.bytes += size
            self.checked.chunks += 1
        self.moved(size)

    def _problem(self, record: Record, text: str, size: int) -> None:
        self.problems.append({"file": record.name, "text": f"{self.titles.of(record.name)} {text}", "bytes": size})


def _bytes_of(record: Record, checked: Found) -> int:
    shape = Shape(record.size, record.extents)
    return sum(map(shape.weight, checked.bad))


def _picks(files: list[Record]) -> tuple[list[Piece], list[Piece]]:
    """What to read afresh: heads, tails and small files, none too big for the small buffer of `each`; random chunks."""
    near: list[Piece] = []
    far: list[Piece] = []
    for record in files:
        if not record.size:
            continue
        if digest.function(record.digest) is None:
            return [], []  # cannot be computed here: stamps alone, and sha256 when one moves
        if record.size <= 2 * END:
            near.append(content.chunk(record, 0))
            continue
        known = content.ends(record)
        near += known
        shape = Shape(record.size, record.extents)
        filled = list(shape.with_data()) if record.extents else range(shape.chunks)
        picked = {_random(len(filled)) for _ in range(_RANDOM)}
        far += [content.chunk(record, filled[at]) for at in picked | (set() if known else {0, len(filled) - 1})]
    far = _drawn(far, _SAMPLES)
    whole = {(piece.record.name, piece.first // CHUNK) for piece in far}
    near = [piece for piece in near if (piece.record.name, piece.first // CHUNK) not in whole]
    return _drawn(near, _ENDS), far


def _drawn(picks: list[Piece], most: int) -> list[Piece]:
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
