"""The index of a sharded model, read as it passes: {"weight_map": {tensor: name of the file beside it}}.

An index of 100,000 tensors is 9 MB, and ten times as much once it is parsed: more memory than the agent may take. So
it is read token by token, and of the map only the distinct names are kept.
"""

from __future__ import annotations

import json
import re

from sparkbuild.agent.ledger.ledger import safe_name

WANTED = '{"weight_map": {tensor: the name of a file beside the index}}'
_MAP = b'"weight_map"'
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
# The pair is what the map consists of: taken as one token, 100,000 of them cost a tenth of a second.
_TOKEN = re.compile(
    rb"[ \t\r\n]*(?:(?P<pair>(" + _STRING + rb")[ \t\r\n]*:[ \t\r\n]*(" + _STRING + rb")[ \t\r\n]*,)"
    rb"|(?P<string>" + _STRING + rb")|(?P<mark>[{}\[\]:,])|(?P<plain>[-+.0-9A-Za-z]+))",
    re.DOTALL,
)
_SPACE = b" \t\r\n"
_LONGEST = 1 << 20  # bytes of a string, far more than any name has
_DEEPEST = 100  # brackets in brackets; a real one has 2
_SHOWN = 80
_VALUE, _KEY, _COLON, _AFTER, _OVER = "a value", "a key", "a colon", "a comma or the end", "nothing more"
_NO_JSON = "it is no JSON"


class ShardIndex:
    """`names`: the files that it names, so far. `problem`: why it is no index, "" when nothing speaks against it."""

    def __init__(self) -> None:
        self.names: set[bytes] = set()
        self.problem = ""
        self._open: list[bytes] = []  # `{` and `[`, and `_MAP` for the map itself
        self._next, self._key, self._rest, self._may_close = _VALUE, b"", b"", False
        self._has_map = False

    def feed(self, block: bytes) -> None:
        """One more block of the file."""
        if not self.problem:
            self._rest = self._tokens(self._rest + block)
            if len(self._rest) > _LONGEST:
                self.problem = f"{_NO_JSON}: a word of more than {_LONGEST} bytes"

    def end(self) -> bool:
        """All of it was fed. False when its end is not there, which `problem` does not tell."""
        if not self.problem:
            self._rest = self._tokens(self._rest + b" ")
        if self.problem:
            return True
        if self._open or self._rest.strip(_SPACE) or self._next != _OVER:
            return False
        if not self._has_map:
            self.problem = "it has no weight_map"
        return True

    def _tokens(self, data: bytes) -> bytes:
        """Take what is complete; the rest may go on in the next block."""
        at, token = 0, _TOKEN.match(data)
        while token is not None and token.end() < len(data) and not self.problem:
            at = token.end()
            self._take(token)
            token = _TOKEN.match(data, at)
        rest = data[at:]
        begun = rest.lstrip(_SPACE)
        if not self.problem and token is None and begun and not begun.startswith(b'"'):
            self.problem = f"{_NO_JSON}: {_shown(begun)}"
        return rest

    def _take(self, token: re.Match[bytes]) -> None:
        kind = token.lastgroup
        if kind == "pair":
            self._string(token[2])
            self._mark(b":")
            self._string(token[3])
            self._mark(b",")
        elif kind == "string":
            self._string(token["string"])
        elif kind == "mark":
            self._mark(token["mark"])
        else:
            self._plain(token["plain"])

    def _string(self, text: bytes) -> None:
        if self._next == _KEY:
            self._key, self._next, self._may_close = text, _COLON, False
        elif self._begins_value(text) and self._open[-1] == _MAP:
            self.names.add(text)

    def _plain(self, text: bytes) -> None:
        try:
            json.loads(text)
        except ValueError:
            self.problem = f"{_NO_JSON}: {_shown(text)}"
        if self._begins_value(text) and self._open[-1] == _MAP:
            self.problem = f"its weight_map has {_shown(text)} for a tensor"

    def _begins_value(self, text: bytes) -> bool:
        """Whether a value may stand here; then it does."""
        if self._next != _VALUE:
            self.problem = self.problem or f"{_NO_JSON}: {_shown(text)} where {self._next} belongs"
        elif not self._open:
            self.problem = f"{_shown(text)} stands where its object belongs"
        elif len(self._open) == 1 and self._key == _MAP and text != b"{":
            self.problem = f"its weight_map is {_shown(text)}"
        if self.problem:
            return False
        self._next, self._may_close = _AFTER, False
        return True

    def _mark(self, mark: bytes) -> None:
        if mark in b"{[":
            self._opens(mark)
        elif mark in b"}]":
            self._closes(mark)
        elif mark == b":" and self._next == _COLON:
            self._next = _VALUE
        elif mark == b"," and self._next == _AFTER:
            self._next = _VALUE if self._open[-1] == b"[" else _KEY
        else:
            self.problem = self.problem or f"{_NO_JSON}: {_shown(mark)} where {self._next} belongs"

    def _opens(self, mark: bytes) -> None:
        if not self._open and mark == b"{" and self._next == _VALUE:
            self._open.append(mark)
        elif self._begins_value(b"a list" if mark == b"[" else mark):
            is_map = len(self._open) == 1 and self._key == _MAP
            if len(self._open) == _DEEPEST:
                self.problem = f"{_NO_JSON}: more than {_DEEPEST} brackets in each other"
                return
            if self._open[-1] == _MAP:
                self.problem = "its weight_map has a list or an object for a tensor"
                return
            self._open.append(_MAP if is_map else mark)
            self._has_map |= is_map
        self._next, self._may_close = (_KEY if mark == b"{" else _VALUE), True

    def _closes(self, mark: bytes) -> None:
        fits = bool(self._open) and (self._open[-1] == b"[") == (mark == b"]")
        if not fits or not (self._next == _AFTER or self._may_close):
            self.problem = self.problem or f"{_NO_JSON}: {_shown(mark)} where {self._next} belongs"
            return
        self._open.pop()
        self._next, self._may_close = (_AFTER if self._open else _OVER), False


def file_names(quoted: set[bytes]) -> tuple[set[str], str]:
    """The names of files that an index names, as they are; and one that can be no file's beside it, "" for none."""
    names = set[str]()
    for text in sorted(quoted):
        try:
            name = str(json.loads(text))
        except ValueError:
            return names, _shown(text)
        if not safe_name(name):
            return names, _shown(text)
        names.add(name)
    return names, ""


def _shown(text: bytes) -> str:
    shown = text[:_SHOWN].decode(errors="replace")
    return shown if shown.isprintable() else repr(shown)
