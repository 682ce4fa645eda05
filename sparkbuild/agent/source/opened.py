"""Sources by their description, and the archives that were opened for them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sparkbuild.agent.source.fileset import Bytes
from sparkbuild.agent.source.source import FileSource, Source, TextSource

if TYPE_CHECKING:
    from sparkbuild.agent.source.zipped import Archive

# Who has rows as sources: a module with `RowSource(rows) -> Source`, found when needed, for this one is below it.
_ELSEWHERE = {"rows": "sparkbuild.agent.rows.source"}


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

    def source(self, where: Bytes) -> Source:
        """What is to be read from there. Raises AgentError."""
        if where["kind"] == "file":
            return FileSource(where["path"], where.get("version", ""))
        if where["kind"] == "zip-member":
            return self.archive(where["path"]).member(where["member"])
        if where["kind"] == "text":
            return TextSource(where["text"])
        source: Source = importlib.import_module(_ELSEWHERE["rows"]).RowSource(where)
        return source

    def close(self) -> None:
        """Close every archive."""
        for archive in self._open.values():
            archive.close()
        self._open.clear()
