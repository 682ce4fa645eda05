"""Where in a file a key would be right, and which table header took it away from there.

TOML has a trap: every key below a `[table]` or `[[table]]` line belongs to that table, up to the next such line, so a
top-level key written at the end of the file lands in the last table.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from sparkbuild.workspace.toml.scan import Document, Path, Spot


class Level(msgspec.Struct, frozen=True):
    """One table of a file's shape: its path without indices ("*" for free names), its name on screen, its keys."""

    path: Path
    name: str
    fields: frozenset[str]

    @property
    def place(self) -> str:
        """The table as a place: `in [serve]`, `at the top level`."""
        return f"in {self.name}" if self.path else "at the top level"


def within(path: Path) -> str:
    """A table as a place: `in [serve]`, `in [[gates]]`, or `at the top level`."""
    return f"in {name_of(path)}" if path else "at the top level"


def name_of(path: Path) -> str:
    """A table as a reader knows it: `[serve]`, `[[gates]]`, or `the top level`."""
    keys = [str(key) for key in path if isinstance(key, str)]
    if not keys:
        return "the top level"
    return f"[[{'.'.join(keys)}]]" if isinstance(path[-1], int) else f"[{'.'.join(keys)}]"


def levels(shape: type[msgspec.Struct] | types.UnionType) -> list[Level]:
    """Every table the shape has, the top level first."""
    found: list[Level] = []
    _collect(shape, (), found, many=False)
    return found


def _collect(kind: Any, path: Path, found: list[Level], *, many: bool) -> None:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for choice in get_args(kind):
            _collect(choice, path, found, many=many)
    elif origin is tuple:
        _collect(get_args(kind)[0], path, found, many=True)
    elif origin is dict:
        _collect(get_args(kind)[1], (*path, "*"), found, many=False)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        names = frozenset(field.encode_name for field in fields)
        same = next((level for level in found if level.path == path), None)
        if same is None:
            shown = name_of((*path, 0) if many else path).replace("*", "<name>")
            found.append(Level(path, shown, names))
        else:  # another choice of a tagged union
            found[found.index(same)] = Level(path, same.name, same.fields | names)
        for field in fields:
            _collect(field.type, (*path, field.encode_name), found, many=False)


class Places:
    """The levels of a shape, matched with the places of one document."""

    def __init__(self, all_levels: list[Level], document: Document) -> None:
        """Keep both."""
        self.levels = all_levels
        self.document = document

    def swallowed(self, path: Path, key: str) -> Level | None:
        """The level around `path` that has this key, when a header put the key into `path`; the outermost first."""
        spot = self.document.spots.get((*path, key))
        if spot is None or spot.header is None or spot.header.path != path:
            return None
        keys = tuple(part for part in path if isinstance(part, str))
        for level in sorted(self.levels, key=lambda level: len(level.path)):
            depth = len(level.path)
            around = depth < len(keys) and all(a in ("*", b) for a, b in zip(level.path, keys, strict=False))
            if around and key in level.fields:
                return level
        return None

    def swallowing(self, key: str, spot: Spot, level: Level) -> tuple[str, str]:
        """What happened to a swallowed key, and where to move it."""
        header = spot.header
        if header is None:
            return "", ""
        found = f"{header.text} on line {header.line} took it: every key below a header belongs to that header's table"
        if not level.path:
            first = self.document.headers[0]
            return found, f"move `{key}` (line {spot.line}) above line {first.line}, the first header {first.text}"
        depth = len(level.path)
        for home in self.document.headers:
            keys = tuple(part for part in home.path if isinstance(part, str))
            if len(keys) == depth and header.path[: len(home.path)] == home.path:
                return found, f"move `{key}` (line {spot.line}) up to just below {home.text} on line {home.line}"
        return found, f"move `{key}` (line {spot.line}) into a table {level.name}, written above line {header.line}"

    def elsewhere(self, path: Path, key: str) -> str:
        """Where a missing key stands instead, in a table below the level it is missing from, or ""."""
        for place, spot in self.document.spots.items():
            inside = len(place) > len(path) + 1 and place[: len(path)] == path
            if inside and place[-1] == key and spot.header is not None and spot.header.path == place[:-1]:
                return f"`{key}` stands on line {spot.line}, but inside {spot.header.text} (line {spot.header.line})"
        return ""
