"""Sources by their description, and the archives that were opened for them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.source.source import FileSource, Source, TextSource
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.source.zipped import Archive

# Who has sources of other kinds: a module with `source(desc) -> Source`, found when needed. Most folders need none.
_ELSEWHERE = {"packed": "sparkbuild.agent.rows.source", "page15": "sparkbuild.agent.rows.source"}


class Archives:
    """Sources by their description; an archive stays open for all of its members."""

    def __init__(self) -> None:
        self._open: dict[str, Archive] = {}

    def archive(self, path: str) -> Archive:
        """The archive at a path, opened once."""
        if path not in self._open:
            from sparkbuild.agent.source.zipped import Archive  # noqa: PLC0415 - zipfile costs 8 ms, and a folder needs none

            self._open[path] = Archive(path)
        return self._open[path]

    def source(self, wanted: dict[str, Any]) -> Source:
        """{"kind": "file", "path", "version"?}, {"kind": "zip-member", "path", "member"}, {"kind": "text", "text"}, or
        rows ("packed", "page15", see rows.source). Raises AgentError.
        """
        kind = wanted.get("kind")
        if kind == "file":
            return FileSource(wanted["path"], wanted.get("version", ""))
        if kind == "zip-member":
            return self.archive(wanted["path"]).member(wanted["member"])
        if kind == "text":
            return TextSource(wanted["text"])
        if kind in _ELSEWHERE:
            source: Source = importlib.import_module(_ELSEWHERE[kind]).source(wanted)
            return source
        known = ", ".join(("file", "zip-member", "text", *_ELSEWHERE))
        raise AgentError("a source of an unknown kind", kind="config", found=repr(kind), wanted=known)

    def close(self) -> None:
        """Close every archive."""
        for archive in self._open.values():
            archive.close()
        self._open.clear()
