"""What is known about the files of a folder while it is being changed and has no ledger, in `.sparkbuild/draft.jsonl`.

A hint for the next try; nobody else believes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger.ledger import (
    LedgerError,
    Link,
    Record,
    as_link,
    as_object,
    as_record,
    plain,
    small_file,
)
from sparkbuild.agent.wire.layout import DRAFT_FILE, OURS

_NAME = f"{OURS}/{DRAFT_FILE}"


class Draft:
    """Records of files that are known to be whole while the folder has no ledger, one JSON line each; the last wins."""

    def __init__(self, dst: str) -> None:
        self._dst = dst
        self.path = f"{dst}/{_NAME}"

    def is_there(self) -> bool:
        """True when a run was interrupted after it had begun to change the folder."""
        return os.path.lexists(self.path)

    def read(self) -> dict[str, Record]:
        """What earlier tries finished; lines that are torn or damaged are left out."""
        records = {}
        for value in self._lines():
            with suppress(LedgerError):
                record = as_record(value, str(value.get("digest")))
                records[record.name] = record
        return records

    def read_links(self) -> list[Link]:
        """The links that earlier tries made, or were about to make."""
        links = []
        for value in self._lines():
            with suppress(LedgerError):
                links += [as_link(value)] if "text" in value else []
        return links

    def _lines(self) -> Iterator[dict[str, object]]:
        data = None
        with suppress(LedgerError):
            data = small_file(self.path)
        for line in (data or b"").splitlines():
            with suppress(LedgerError):
                yield as_object(line)

    def start(self, records: list[Record], links: Iterable[Link] = ()) -> None:
        """Begin anew with these records and links, on the disk when this returns."""

        def write(file: IO[bytes]) -> None:
            file.writelines(map(self._line_of, records))
            file.writelines(json.dumps(link._asdict(), ensure_ascii=False).encode() + b"\n" for link in links)

        with Held(self._dst) as held:
            held.replace(_NAME, write)

    def add(self, record: Record) -> None:
        """One more file is whole. Not forced to the disk: without its line the file is only copied once more."""
        with Held(self._dst) as held:
            fd = held.open(_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "wb") as file:
            file.write(b"\n" + self._line_of(record))  # the line before may be torn

    def end(self) -> None:
        """The ledger is written: forget the draft."""
        with Held(self._dst) as held:
            held.unlink(_NAME)

    @staticmethod
    def _line_of(record: Record) -> bytes:
        return json.dumps({**plain(record), "digest": record.digest}, ensure_ascii=False).encode() + b"\n"
