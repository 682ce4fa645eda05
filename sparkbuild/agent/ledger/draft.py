"""What is known about the files of a folder while it is being changed and has no ledger, in `.sparkbuild/draft.jsonl`.

A hint for the next try; nobody else believes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from sparkbuild.agent.disk.files import fsync_folder
from sparkbuild.agent.ledger.ledger import (
    OURS,
    LedgerError,
    Link,
    Record,
    as_link,
    as_object,
    as_record,
    plain,
    small_file,
)


class Draft:
    """Records of files that are known to be whole while the folder has no ledger, one JSON line each; the last wins."""

    def __init__(self, dst: str) -> None:
        self.path = f"{dst}/{OURS}/draft.jsonl"

    def is_there(self) -> bool:
        """True when a run was interrupted after it had begun to change the folder."""
        return os.path.lexists(self.path)

    def read(self) -> dict[str, Record]:
        """What earlier tries finished; lines that are torn or damaged are left out."""
        try:
            data = small_file(self.path)
        except LedgerError:
            data = None
        found = {}
        for line in (data or b"").splitlines():
            try:
                value = as_object(line)
                record = as_record(value, str(value.get("digest")))
            except LedgerError:
                continue
            found[record.name] = record
        return found

    def read_links(self) -> list[Link]:
        """The links that earlier tries made, or were about to make."""
        try:
            data = small_file(self.path)
        except LedgerError:
            data = None
        found = []
        for line in (data or b"").splitlines():
            try:
                value = as_object(line)
                if "text" in value:
                    found.append(as_link(value))
            except LedgerError:
                continue
        return found

    def start(self, records: list[Record], links: Iterable[Link] = ()) -> None:
        """Begin anew with these records and links, on the disk when this returns."""
        temporary = f"{self.path}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(map(self._line, records))
            file.writelines(json.dumps(link._asdict(), ensure_ascii=False) + "\n" for link in links)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, self.path)
        fsync_folder(os.path.dirname(self.path))

    def add(self, record: Record) -> None:
        """One more file is whole. Not forced to the disk: without its line the file is only copied once more."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\n" + self._line(record))  # the line before may be torn

    def end(self) -> None:
        """The ledger is written: forget the draft."""
        if os.path.lexists(self.path):
            os.unlink(self.path)

    @staticmethod
    def _line(record: Record) -> str:
        return json.dumps({**plain(record), "digest": record.digest}, ensure_ascii=False) + "\n"
