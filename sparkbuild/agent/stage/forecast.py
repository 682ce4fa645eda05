"""What a staging would write, keep and fail of, as far as a look at the folder and at the source can tell."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.ledger import digest, folder, ledger, obstacles, ownership
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Ledger, Link, Record
from sparkbuild.agent.ledger.part import Part, stem
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.machine import oserrors
from sparkbuild.agent.source import plan
from sparkbuild.agent.source.fileset import FileSet, Wanted
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.stage import strangers
from sparkbuild.agent.stage.adopt import Adopter
from sparkbuild.agent.wire.layout import OURS
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import Expected, Refusal, StagedQuery


def expected(query: StagedQuery, recorded: Ledger | None) -> Expected:
    """What staging the folder would do, as far as a look can tell."""
    if "what" not in query:
        return _unsaid()
    store, what = query.get("store", ""), query["what"]
    dst = inside(store, query["dst"])
    blocked = obstacles.blocked(query, dst) or folder.in_the_way(dst)
    if blocked is not None:
        return _unsaid({**blocked.fields, "part": "dst"})
    archives = Archives()
    try:
        file_set = patience.bounded(lambda: plan.of_what(what, store, dst, archives))
        there = _There(dst, recorded, linked=bool(query.get("linked")))
        blocked = there.blocked(file_set) or patience.bounded(lambda: there.strangers(file_set, archives))
    except (AgentError, OSError) as error:
        if what["kind"] == "artifact":
            return _unsaid()  # not fetched yet
        return _unsaid({**_fields(error, store), "part": "source"})
    finally:
        archives.close()
    return {
        "to_write": sum(there.lacking(item) for item in file_set.files),
        "wanted": sum(Shape(item.size, item.extents).data for item in file_set.files),
        "found": {"files": len(there.found), "bytes": sum(there.found)},
        "beside": there.beside(),
        "about": file_set.about,
        "refused": {**blocked.fields, "part": "dst"} if blocked is not None else {},
    }


def _unsaid(refused: Refusal | None = None) -> Expected:
    """What is said where the source does not say."""
    return {"to_write": None, "about": {}, "refused": refused or {}}


def _fields(error: AgentError | OSError, store: str) -> dict[str, str]:
    if isinstance(error, AgentError):
        return error.fields
    return oserrors.fields_of(error, store)


class _There:
    """What a folder has by now: files that are known, by its ledger or by the draft of a staging that did not end, and
    the parts of others. As `stage` finds it, but that no content is read.
    """

    def __init__(self, dst: str, recorded: Ledger | None, *, linked: bool) -> None:
        draft = Draft(dst)
        self.dst, self.linked = dst, linked
        self.lost = recorded is None and (os.path.lexists(ledger.path_of(dst)) or _was_whole(dst, draft))
        self.known: dict[str, Record] = {
            **draft.read(),
            **{record.name: record for record in (recorded.files if recorded else ())},
        }
        self.links: list[Link] = [*draft.read_links(), *(recorded.links if recorded else ())]
        self.parts = frozenset(name for name in _names(f"{dst}/{OURS}") if name.endswith(".chunks"))
        names = (record.digest for record in self.known.values())
        self.algorithm = digest.first_usable(names) if self.parts else ""
        self.kept: set[str] = set()
        self.found: list[int] = []  # bytes of each file without a record that staging would keep, if it proves right

    def lacking(self, item: Wanted) -> int:
        """Bytes of a file that are still to be written."""
        shape = Shape(item.size, item.extents)
        record = self.known.get(item.name)
        if record is None or item.is_in(record):
            size = self._size(item.name)
            if record is not None and size == item.size:
                self.kept.add(item.name)
                return 0
            if record is None and size == item.size and (size or item.sha256):
                self.found.append(shape.data)
                return 0
        if f"{stem(item.name)}.chunks" not in self.parts:
            return shape.data
        return Part(self.dst, item.name, shape, item.read_from, self.algorithm).lacking()

    def _size(self, name: str) -> int | None:
        """The size of a file that staging keeps under its name when its content is right."""
        try:
            status = os.lstat(f"{self.dst}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        own = stat.S_ISREG(status.st_mode) and (self.linked or status.st_nlink == 1)
        return status.st_size if own and not folder.through_link(self.dst, name) else None

    def beside(self) -> int:
        """Bytes of files that are replaced or removed, and that the disk does not get back: exports have them too."""
        size = 0
        for name in self.known:
            if name not in self.kept and folder.holds(self.dst, name):
                status = os.lstat(f"{self.dst}/{name}")
                size += status.st_blocks * 512 if status.st_nlink > 1 else 0
        return size

    def blocked(self, file_set: FileSet) -> AgentError | None:
        """What stands where a file or a folder belongs, and does not go by itself since it was staged."""
        if not os.path.isdir(self.dst):
            return None
        names = [*(item.name for item in file_set.files), *(link.name for link in file_set.links)]
        return folder.in_the_place(self.dst, names, {*self.known, *(link.name for link in self.links)})

    def strangers(self, file_set: FileSet, archives: Archives) -> AgentError | None:
        """Files of others that staging would not replace, as far as a glance tells."""
        if self.lost or not os.path.isdir(self.dst):
            return None
        adopter = Adopter(
            digest.best(), full=False, opener=lambda item: archives.source(item.source), moved=lambda _n: None
        )
        ours = {*self.known, *(link.name for link in self.links)}
        in_the_way = strangers.in_the_way(self.dst, file_set, ours, strangers.glance(adopter))
        return strangers.refused(self.dst, in_the_way, file_set) if in_the_way else None


def _was_whole(dst: str, draft: Draft) -> bool:
    """Its ledger was lost: what is there was staged."""
    owner = ownership.read(dst)
    return owner is not None and owner.staged_at > 0 and not draft.is_there()


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
