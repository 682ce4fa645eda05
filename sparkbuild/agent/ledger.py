"""The ledger: what was staged into a folder, with the digests to check it by, in `<dst>/.sparkbuild/ledger.json`.

Format (JSON): {"format": "sparkbuild-ledger", "version": 1, "key": 64 hex, "parts": {}, "digest": name, "chunk": bytes,
"at": unix seconds, "files": [{"name", "size", "sha256", "chunks", "source"}]}. `chunks` is base64 of the 8-byte digests
of the file's chunks, in order; 4 TB of data make a ledger of 10 MB. `source` is what the bytes are by content (an
artifact's sha256 and the member in it), never a path. The ledger is written last: with it, everything is whole.

`draft.jsonl` beside it is the list of what is known about files while the folder is being changed and has no ledger:
a hint for the next try, nobody else believes it.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import stat
import time
from typing import Any, NamedTuple

from sparkbuild.agent.digest import CHUNK, WIDTH, count
from sparkbuild.agent.files import fsync_folder, write_json

FORMAT, VERSION = "sparkbuild-ledger", 1
OURS = ".sparkbuild"  # the folder beside the data
LIMIT = 64 << 20  # bytes of a ledger that anyone would read
_HEX = re.compile(r"[0-9a-f]{64}")


class LedgerError(ValueError):
    """The ledger is not one; the text says why."""


class Record(NamedTuple):
    """One file: size in bytes, sha256 in hex, the chunk digests one after the other, and what algorithm they are.

    A NamedTuple, as all records of staging: importing dataclasses costs every call of the agent 7 ms.
    """

    name: str
    size: int
    sha256: str
    chunks: bytes
    digest: str
    source: dict[str, Any]

    def chunk(self, index: int) -> bytes:
        """The digest of one chunk."""
        return self.chunks[index * WIDTH : (index + 1) * WIDTH]


class Ledger(NamedTuple):
    """What a folder holds. `seal` names this very ledger in the stamp cache."""

    key: str
    parts: dict[str, Any]
    digest: str
    files: tuple[Record, ...]
    at: float = 0.0
    seal: str = ""

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files)


def path_of(dst: str) -> str:
    """Where the ledger of a folder is."""
    return f"{dst}/{OURS}/ledger.json"


def read(dst: str) -> Ledger | None:
    """The ledger of a folder, None when there is none. Raises LedgerError when it is damaged or hostile."""
    data = small_file(path_of(dst))
    return None if data is None else parse(data)


def write(dst: str, ledger: Ledger) -> Ledger:
    """Put the ledger in place, on the disk when this returns; returns it as it will be read."""
    value = {
        "format": FORMAT,
        "version": VERSION,
        "key": ledger.key,
        "parts": ledger.parts,
        "digest": ledger.digest,
        "chunk": CHUNK,
        "at": round(time.time(), 3),
        "files": [_plain(record) for record in ledger.files],
    }
    write_json(path_of(dst), value)
    made = read(dst)
    if made is None:
        raise LedgerError("it vanished while it was being written")
    return made


def parse(data: bytes) -> Ledger:
    """Check every field of a ledger. Raises LedgerError."""
    value = _object(data)
    if value.get("format") != FORMAT:
        raise LedgerError("it is not a sparkbuild ledger")
    if value.get("version") != VERSION or value.get("chunk") != CHUNK:
        raise LedgerError(f"it has version {value.get('version')!r}, this sparkbuild reads version {VERSION}")
    key, parts, digest, at, files = (value.get(name) for name in ("key", "parts", "digest", "at", "files"))
    if not (isinstance(key, str) and isinstance(parts, dict) and isinstance(digest, str) and isinstance(files, list)):
        raise LedgerError("key, parts, digest or files are missing")
    records = tuple(_record(item, digest) for item in files)
    if len({record.name for record in records}) != len(records):
        raise LedgerError("it names a file twice")
    seal = f"{binascii.crc32(data):08x}-{len(data)}"
    return Ledger(key, parts, digest, records, at if isinstance(at, float) else 0.0, seal)


def safe_name(name: object) -> bool:
    """True for the name of a file inside the folder: relative, no `..`, nothing of ours, printable, not too long."""
    if not isinstance(name, str) or not 0 < len(name) <= 1024 or not name.isprintable() or "\\" in name:
        return False  # isprintable also refuses the lone surrogates that no file system could take
    steps = name.split("/")
    return steps[0] != OURS and all(step not in ("", ".", "..") and len(step.encode()) <= 255 for step in steps)


class Draft:
    """Records of files that are known to be whole while the folder has no ledger, one JSON line each; the last wins."""

    def __init__(self, dst: str) -> None:
        self.path = f"{dst}/{OURS}/draft.jsonl"

    def read(self) -> dict[str, Record]:
        """What earlier tries finished; lines that are torn or damaged are left out."""
        try:
            data = small_file(self.path)
        except LedgerError:
            data = None
        found = {}
        for line in (data or b"").splitlines():
            try:
                value = _object(line)
                record = _record(value, str(value.get("digest")))
            except LedgerError:
                continue
            found[record.name] = record
        return found

    def start(self, records: list[Record]) -> None:
        """Begin anew with these records, on the disk when this returns."""
        temporary = f"{self.path}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(map(self._line, records))
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
        return json.dumps({**_plain(record), "digest": record.digest}, ensure_ascii=False) + "\n"


def _plain(record: Record) -> dict[str, Any]:
    chunks = binascii.b2a_base64(record.chunks, newline=False).decode()
    fields = {"name": record.name, "size": record.size, "sha256": record.sha256}
    return {**fields, "chunks": chunks, "source": record.source}


def _record(item: object, digest: str) -> Record:
    if not isinstance(item, dict):
        raise LedgerError("an entry of its files is no object")
    name, size, sha256, chunks, source = (item.get(key) for key in ("name", "size", "sha256", "chunks", "source"))
    if not safe_name(name):
        raise LedgerError(f"it names a file {str(name)[:80]!r}, which is not inside the folder")
    if type(size) is not int or not 0 <= size < 1 << 63:  # not isinstance: a bool is an int too
        raise LedgerError(f"the size of {name} is {str(size)[:40]}")
    if not isinstance(sha256, str) or not _HEX.fullmatch(sha256) or not isinstance(source, dict):
        raise LedgerError(f"the sha256 or the source of {name} is missing")
    try:
        digests = binascii.a2b_base64(chunks) if isinstance(chunks, str) else b""
    except ValueError as error:
        raise LedgerError(f"the chunk digests of {name} are damaged") from error
    if len(digests) != count(size) * WIDTH:
        raise LedgerError(f"{name} has {len(digests) // WIDTH} chunk digests, its size wants {count(size)}")
    return Record(str(name), size, sha256, digests, digest, source)


def small_file(path: str) -> bytes | None:
    """A small file of ours in one read; a link, a pipe, or a file grown out of all proportion, is refused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LedgerError("it is a symbolic link") from error
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise LedgerError("it is no regular file")
        size = found.st_size
        if size > LIMIT:
            raise LedgerError(f"it has {size} bytes, more than {LIMIT}")
        return os.read(fd, size + 1)
    finally:
        os.close(fd)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # RecursionError: a file of 100,000 opening brackets
        raise LedgerError("it is cut short or damaged: no JSON") from error
    if not isinstance(value, dict):
        raise LedgerError("it is no JSON object")
    return value
