"""A layer of a docker image: files by their paths, written as a tar that is the same for the same content.

Nothing is unpacked on this node: what goes in is a name, a mode and a stream, so that no name can lead anywhere.
"""

from __future__ import annotations

import io
from collections.abc import Callable

from sparkbuild.agent.store import tar
from sparkbuild.agent.store.tar import DIR, FILE, Entry
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

_PARTS = 4096  # bytes of a path, as Linux has it
_WHITEOUT = ".wh."  # a layer that has `.wh.x` takes `x` of the layers below away


class Layer:
    """Entries by path, without a leading slash. Owner and group are root, times are the epoch."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def add(self, path: str, entry: Entry) -> None:
        """Add a name. AgentError (integrity) when the name is a trap, or two bring different things under it."""
        place = checked(path, entry.origin)
        if not place:
            return  # the root folder itself
        there = self.entries.get(place)
        if there is not None and not (there.kind == entry.kind == DIR):
            raise refused(f"two things are called /{place}", entry.origin, f"{there.origin} and {entry.origin}")
        self.entries[place] = there or entry

    def add_bytes(self, path: str, content: bytes, mode: int, origin: str) -> None:
        """Add a file by its content."""
        self.add(path, Entry(FILE, mode, origin, len(content), open=lambda: io.BytesIO(content)))

    def write(self, path: str, grew: Callable[[int], None] = lambda _size: None) -> str:
        """Write it to a file; returns the sha256 of that, which docker calls the layer's diff id. `grew` is told of the
        file's size while it is written.
        """
        self._complete()
        return tar.write(path, self.entries, 0, grew).digest.hexdigest()

    def _complete(self) -> None:
        """Add the folders that names lie in; refuse a name below what is no folder."""
        for name, entry in list(self.entries.items()):
            while name := name.rpartition("/")[0]:
                above = self.entries.setdefault(name, Entry(DIR, 0o755, entry.origin))
                if above.kind != DIR:
                    raise refused(f"something lies below /{name}, which is no folder", entry.origin, above.origin)


def checked(path: str, origin: str) -> str:
    """A name as it stands in a layer: no slash in front, no `.` or `..`; "" for the root. AgentError for a trap."""
    place = "/".join(part for part in path.split("/") if part not in {"", "."})
    parts = place.split("/")
    if path.startswith("/") or ".." in parts:
        raise refused("a name leads out of its folder", origin, repr(path))
    if any(part.startswith(_WHITEOUT) for part in parts):
        raise refused(f"a name starts with {_WHITEOUT}, which would remove files", origin, repr(path))
    if not path.isprintable() or len(path.encode("utf-8", "surrogateescape")) > _PARTS:
        raise refused("a name cannot be one", origin, ascii(path)[:200])
    return place


def refused(what: str, origin: str, found: str) -> AgentError:
    """Content that no honest package has."""
    next_ = "find out who made it before you use it; nothing was kept"
    return integrity_error(f"{origin}: {what}", found=found, next=next_)
