"""Is the source of a staging still what it was when it began?"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.plan import of_what
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import What

_TOLD = 3  # files of a source that was changed
PINNED = ("artifact", "list")  # named by content, or by a caller who knows it


def seen(file_set: FileSet) -> dict[str, int]:
    """What each file and link is to be, as a number to compare within this process: a tenth of the memory."""
    files = {wanted.name: hash(repr(wanted)) for wanted in file_set.files}
    return {**files, **{link.name: hash(repr(link)) for link in file_set.links}}


class ChangedError(AgentError):
    """The source is another than it was. `names`: of the files and links that are, are new, or are gone."""

    def __init__(self, dst: str, names: list[str], found: str) -> None:
        super().__init__(
            "the source was changed while it was being staged",
            kind="integrity",
            where=dst,
            found=found,
            next="run again: what did not change is kept",
        )
        self.names = names


def check(what: What, store: str, dst: str, before: dict[str, int]) -> None:
    """Raise ChangedError when the source is another than `before`, what `seen` said when the staging began. Each file
    was held open while it was read; links, refs and lists of files were not, and a copy takes hours.
    """
    if what["kind"] in PINNED:
        return
    with closing(Archives()) as archives:
        file_set = of_what(what, store, inside(store, dst), archives)
    now = seen(file_set)
    other = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if other:
        called = {wanted.name: wanted.called for wanted in file_set.files}
        first = [
            f"{called.get(name, name)} is {'gone' if name not in now else 'another now' if name in before else 'new'}"
            for name in other[:_TOLD]
        ]
        more = f", and {len(other) - _TOLD} more" if other[_TOLD:] else ""
        raise ChangedError(dst, other, ", ".join(first) + more)
