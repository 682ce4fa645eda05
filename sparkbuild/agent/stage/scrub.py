"""Read the next part of what is staged and compare it with its ledger, at idle priority: a cursor beside the data says
where to go on. The folder whose last round ended first is read first.

What needs no reading is told each time, whoever's turn it is: files that are missing, of another size or kind, links.
A file that is found damaged loses its stamp, so that the next look reads all of it, and staging mends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import dump, inside
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.ledger import content, digest, folder, ledger, links, stamps, way
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.ledger import Ledger, LedgerError, Record, small_file
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.ledger.titles import Titles
from sparkbuild.agent.machine.idle import be_idle
from sparkbuild.agent.wire.layout import OURS, SCRUB_FILE
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.disk.pages import Pages
    from sparkbuild.agent.wire.staging.staged import NamedProblem, Scrubbed, ScrubRequest, ScrubResult

FORMAT = "sparkbuild-scrub/v1"
_NAME = f"{OURS}/{SCRUB_FILE}"
LIMIT = 20_000_000_000
_EVERY = 64  # chunks between two writings of the cursor


class Cursor(NamedTuple):
    """How far a folder is read: `file` and `chunk` come next, by the ledger `seal`. `since`: when this round began,
    `ended`: when the last one did, `round`: how many did, `unread`: bytes that this one could not compare.
    """

    seal: str = ""
    file: int = 0
    chunk: int = 0
    since: float = 0.0
    ended: float = 0.0
    round: int = 0
    unread: int = 0


def path_of(dst: str) -> str:
    """Where the cursor of a folder is."""
    return f"{dst}/{_NAME}"


def run(request: ScrubRequest, reporter: Reporter) -> ScrubResult:
    """The folder whose last round ended first is read first."""
    be_idle()
    with patience.watched(reporter):
        return _scrubbed(request, reporter)


def _scrubbed(request: ScrubRequest, reporter: Reporter) -> ScrubResult:
    store, limit = request["store"], int(request.get("limit") or LIMIT)
    asked = [(inside(store, asked_for["dst"]), asked_for.get("key", "")) for asked_for in request["folders"]]
    with locked(os.path.join(store, "scrub.lock"), "the scrub of staged data"):
        scrubs = [_Scrub(dst, key) for dst, key in asked]
        left = min(limit, sum(scrub.left() for scrub in scrubs))
        total, done = left, 0

        def moved(size: int) -> None:
            nonlocal done
            done += size
            reporter.progress("scrub", done, max(total, done))

        for scrub in scrubs:
            scrub.glance()
        for scrub in sorted(scrubs, key=lambda scrub: scrub.cursor.ended):
            scrub.go_on(limit - done, moved)
    return {"read": done, "folders": [scrub.result() for scrub in scrubs]}


class _Scrub:
    """The scrub of one folder."""

    def __init__(self, dst: str, key: str) -> None:
        self.dst = dst
        self.state: Literal["ok", "damaged", "absent", "other", "busy"] = "ok"
        self.problems: list[NamedProblem] = []
        self.read, self.seconds, self.over = 0, 0.0, False
        self.made, self.cursor, self.unread = Ledger("", {}, "", ()), Cursor(), 0
        try:
            recorded = ledger.read(dst)
        except (LedgerError, OSError) as error:
            recorded = None
            self.problems.append({"file": "", "text": f"its ledger is unreadable: {error}"})
        if recorded is None:
            self.state = "damaged" if self.problems else "busy" if folder.busy(dst) else "absent"
        elif key and recorded.key != key:
            self.state = "other"
        else:
            self.made, self.cursor = recorded, _cursor(dst, recorded)
        self.titles = Titles(self.made.links)
        self.told: set[str] = set()
        self.detours = way.detours(dst, [record.name for record in self.made.files])

    def glance(self) -> None:
        """Look at all names of the folder, and read nothing."""
        standing = {record.name: self._standing(record) for record in self.made.files}
        texts = {name: f"{self.titles.of(name)} {text}" for name, text in standing.items() if text}
        wrong = {link.name: links.problem(self.dst, link) for link in self.made.links}
        self._found(texts | {name: text for name, text in wrong.items() if text})

    def _standing(self, record: Record) -> str:
        """What lstat says against a file."""
        step = way.behind(record.name, self.detours)
        if step:
            return way.out_of_place(self.dst, step, self.detours[step])
        status, text = content.standing(f"{self.dst}/{record.name}")
        if status is not None and status.st_size != record.size:
            return content.describe(record, status.st_size, ())
        return text

    def left(self) -> int:
        """Bytes to the end of the round."""
        return self.made.total - self._passed()

    def _passed(self) -> int:
        """Bytes that the round has behind it, whether they could be compared or not."""
        if self.over:
            return self.made.total
        files, at = self.made.files, self.cursor
        done = sum(record.data for record in files[: at.file])
        return done + (self._into(files[at.file]) if at.file < len(files) else 0)

    def _into(self, record: Record) -> int:
        """Bytes of the file at the cursor that lie before it."""
        shape = Shape(record.size, record.extents)
        return sum(shape.weight(index) for index in shape.with_data() if index < self.cursor.chunk)

    def go_on(self, limit: int, moved: Callable[[int], None]) -> None:
        """Read at most `limit` bytes, to the end of the round at most."""
        if limit <= 0 or self.state == "busy" or not self.made.files:
            return
        began = time.monotonic()
        if not self.cursor.since:
            self.cursor = self.cursor._replace(since=time.time())
        end = self.read + limit

        def passed(size: int) -> None:
            self.read += size
            moved(size)

        while self.cursor.file < len(self.made.files) and self.read < end:
            if not self._file(self.made.files[self.cursor.file], end, passed):
                return
        if self.cursor.file >= len(self.made.files):
            self.over, self.since, self.unread = True, self.cursor.since, self.cursor.unread
            self.cursor = Cursor(self.made.seal, ended=time.time(), round=self.cursor.round + 1)
        self._save()
        self.seconds = time.monotonic() - began

    since = 0.0  # when a round began that is over

    def _file(self, record: Record, end: int, passed: Callable[[int], None]) -> bool:
        """Go on with one file; False when somebody stages into the folder."""
        path, rest = f"{self.dst}/{record.name}", record.data - self._into(record)
        text = self._standing(record)
        unread = rest if text else 0
        if not text:
            bad: list[int] = []
            try:
                if digest.function(record.digest) is None:  # no digest of single chunks here: all of it or nothing
                    text = content.check(path, record, passed).text
                else:
                    with content.opened(path) as pages:
                        whole = self._chunks(pages, record, bad, end, passed)
                    text = content.describe(record, record.size, tuple(bad))
                    if not whole:
                        return self._damaged(record, text)
            except OSError as error:
                text, unread = content.unreadable(error), rest
        calm = self._damaged(record, text)
        at = self.cursor
        self.cursor = at._replace(file=at.file + 1, chunk=0, unread=at.unread + unread)
        self._save()
        return calm

    def _chunks(self, pages: Pages, record: Record, bad: list[int], end: int, passed: Callable[[int], None]) -> bool:
        """Compare chunks from the cursor on; False when it stopped before the end of the file."""
        shape, buffer = Shape(record.size, record.extents), memoryview(bytearray(min(CHUNK, record.size)))
        if not self.cursor.chunk:
            bad += content.stray_chunks(pages, shape, passed)
        for count, index in enumerate(index for index in shape.with_data() if index >= self.cursor.chunk):
            if self.read >= end:
                self.cursor = self.cursor._replace(chunk=index)
                return False
            if count % _EVERY == _EVERY - 1:
                self.cursor = self.cursor._replace(chunk=index)
                self._save()
            if not content.is_right(pages, content.chunk(record, index), buffer, passed):
                bad.append(index)
        return True

    def _damaged(self, record: Record, text: str) -> bool:
        self._found({record.name: f"{self.titles.of(record.name)} {text}"} if text else {})
        return self.state != "busy"

    def _found(self, texts: dict[str, str]) -> None:
        """Believe that files and links are damaged if they are still those of this ledger, and nobody is about to
        change them. `texts` by name; what was told is not told again.
        """
        new = {name: text for name, text in texts.items() if name not in self.told}
        if not new:
            return
        try:
            still = ledger.read(self.dst)
        except LedgerError:
            still = None
        if still is None or still.seal != self.made.seal:
            self.state = "busy"
            return
        self.state = "damaged"
        self.told |= set(new)
        self.problems += [{"file": name, "text": text} for name, text in new.items()]
        known = stamps.read(self.dst, self.made)
        left = {name: stamp for name, stamp in known.items() if name not in new}
        if left != known:
            stamps.write(self.dst, self.made, left)

    def _save(self) -> None:
        with contextlib.suppress(OSError):  # a folder that cannot be written to is read from its start each time
            value = {"format": FORMAT, **self.cursor._asdict()}
            with Held(self.dst) as held:
                held.replace(_NAME, lambda file: dump(value, file))

    def result(self) -> Scrubbed:
        """What came of it."""
        return {
            "dst": self.dst,
            "state": self.state,
            "problems": self.problems,
            "read": self.read,
            "seconds": round(self.seconds, 3),
            "done": max(0, self._passed() - (self.unread if self.over else self.cursor.unread)),
            "over": self.over,
            "total": self.made.total,
            "since": self.since or self.cursor.since,
            "ended": self.cursor.ended,
            "round": self.cursor.round,
        }


def _cursor(dst: str, recorded: Ledger) -> Cursor:
    """Where to go on; at the start when the cursor is of another ledger, or damaged."""
    fresh = Cursor(recorded.seal)
    try:
        value = json.loads(small_file(path_of(dst)) or b"{}")
        if value.get("format") != FORMAT:
            return fresh
        cursor = Cursor(*({"unread": 0, **value}[name] for name in Cursor._fields))  # older ones have no `unread`
    except (OSError, ValueError, KeyError, AttributeError, LedgerError, RecursionError):
        return fresh
    numbers = (cursor.file, cursor.chunk, cursor.round, cursor.unread)
    whole = all(type(number) is int and number >= 0 for number in numbers)
    if not whole or not all(type(at) in (int, float) and 0 <= at <= time.time() for at in (cursor.since, cursor.ended)):
        return fresh
    if cursor.seal != recorded.seal:
        return fresh._replace(ended=cursor.ended, round=cursor.round)
    if cursor.file >= len(recorded.files) or cursor.chunk >= max(1, digest.count(recorded.files[cursor.file].size)):
        return cursor._replace(file=0, chunk=0, since=0.0, unread=0)
    return cursor
