"""Where each key of a TOML document stands. The TOML library gives values without places; this gives only the places.

Only used to explain a mistake and to change one text, on documents the TOML library has read without complaint: what is
not TOML was already refused, so the scanner need not be strict.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress

import msgspec
import tomli

Path = tuple[str | int, ...]  # keys and indices from the top: ("staging", 0, "id")

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(  # longest quote first; a multi-line string may end in up to two more quotes of its kind
    r'"""(?:\\.|[^\\])*?"""+|' + r"'''.*?'''+|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'",
    re.DOTALL,
)


class Header(msgspec.Struct, frozen=True):
    """A `[table]` or `[[table]]` line; `path` is the table it opens, with the index for `[[table]]`."""

    line: int
    text: str
    path: Path


class Spot(msgspec.Struct, frozen=True):
    """Where a key stands, and the last header above it (None: the top of the file)."""

    line: int
    header: Header | None


class Document(msgspec.Struct, frozen=True):
    """The places in a document, whose text is `text`: the spot of each key and array item, the headers in their order,
    and where each string begins and ends, with its quotes.
    """

    text: str
    spots: dict[Path, Spot]
    headers: list[Header]
    strings: dict[Path, tuple[int, int]]

    def line(self, path: Path) -> int:
        """The line of a key; of the nearest thing around it when it is not written down; 1 for the document."""
        while path:
            if path in self.spots:
                return self.spots[path].line
            path = path[:-1]
        return 1

    def line_of_text(self, value: str) -> int:
        """The line of the first string with this value, 0 when there is none; of a long one, its first line of text."""
        for start, end in self.strings.values():
            literal = self.text[start:end]
            if tomli.loads(f"k = {literal}")["k"] == value:
                return self.text.count("\n", 0, start) + 1 + literal.startswith(('"""\n', "'''\n"))
        return 0


def scan(text: str) -> Document:
    """Find every key of a valid TOML document."""
    scanner = _Scanner(text)
    with suppress(IndexError, RecursionError, tomli.TOMLDecodeError):
        scanner.run()  # what was found so far still helps; an explanation must not fail itself
    return Document(text, scanner.spots, scanner.headers, scanner.strings)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.spots: dict[Path, Spot] = {}
        self.headers: list[Header] = []
        self.strings: dict[Path, tuple[int, int]] = {}
        self._tables: dict[Path, int] = {}  # the last index of each array of tables
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def run(self) -> None:
        base: Path = ()
        while True:
            self._skip(_SPACE)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                base = self._header()
            else:
                self._pair(base)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:  # not what a valid document has here
            raise IndexError(self.at)
        self.at = match.end()
        return match[0]

    def _line(self, at: int) -> int:
        return bisect_right(self._starts, at)

    def _mark(self, path: Path, at: int) -> None:
        # The first place counts: `a.b = 1` and later `a.c = 2` both stand in `a`.
        self.spots.setdefault(path, Spot(self._line(at), self.headers[-1] if self.headers else None))

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_BLANK)
            if self.text[self.at] in "\"'":
                parts.append(str(tomli.loads(f"k = {self._skip(_STRING)}")["k"]))
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_BLANK)
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _header(self) -> Path:
        start = self.at
        double = self.text.startswith("[[", start)
        self.at += 2 if double else 1
        keys = self._key()
        self.at += 2 if double else 1
        path: Path = ()
        for depth, key in enumerate(keys):
            path = (*path, key)
            if double and depth == len(keys) - 1:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                path = (*path, self._tables[path])
        header = Header(self._line(start), self.text[start : self.at], path)
        self.headers.append(header)
        for end in range(1, len(path)):
            self._mark(path[:end], start)
        # Its own header is a better place than that of a table inside it which happens to come first.
        self.spots[path] = Spot(header.line, header)
        return path

    def _pair(self, base: Path) -> None:
        start = self.at
        path = base
        for key in self._key():
            path = (*path, key)
            self._mark(path, start)
        self.at += 1  # the `=`
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        first = self.text[self.at]
        if first in "\"'":
            start = self.at
            self._skip(_STRING)
            self.strings[path] = (start, self.at)
        elif first == "[":
            self._items(path)
        elif first == "{":
            self._inline(path)
        else:
            self._skip(_BARE_VALUE)

    def _items(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_SPACE)
            if self.text[self.at] == "]":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._mark((*path, index), self.at)
            self._value((*path, index))
            index += 1

    def _inline(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_SPACE)
            if self.text[self.at] == "}":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(path)
