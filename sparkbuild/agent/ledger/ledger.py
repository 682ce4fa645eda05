"""The ledger: what was staged into a folder, with the digests to check it by, in `<dst>/.sparkbuild/ledger.json`, whose
fields docs/formats.md has. It is written last: with it, everything is whole. 4 TB of data make a ledger of 10 MB.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import stat
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.files import dump
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH, count
from sparkbuild.agent.wire.layout import LEDGER as VERSION, LEDGER_FILE, OURS

if TYPE_CHECKING:
    from sparkbuild.agent.wire.receipts import Parts
    from sparkbuild.agent.wire.staging.sources import About

FORMAT = "sparkbuild-ledger"
_NAME = f"{OURS}/{LEDGER_FILE}"
LIMIT = 64 << 20  # bytes of a ledger that anyone would read
_BLOCK = 1 << 20  # bytes
_HEX = re.compile(r"[0-9a-f]{64}")

Identity = Mapping[str, object]  # what bytes are by content: written, and compared as a whole
Extents = tuple[tuple[int, int], ...]  # half-open ranges of bytes, ascending, not touching


class LedgerError(ValueError):
    """The ledger is not one; the text says why."""


class Record(NamedTuple):
    """One file: size in bytes, sha256 in hex, the chunk digests one after the other, and what algorithm they are.
    `ends` are the digests of its heads and tails, b"" when they are not known.

    With `extents` it is a sparse file: these ranges are its data. Its sha256 is over the bytes of the extents in order,
    the digest of a chunk over the whole chunk with zeros in the holes.
    A NamedTuple, as all records of staging: importing dataclasses costs every call of the agent 7 ms.
    """

    name: str
    size: int
    sha256: str
    chunks: bytes
    digest: str
    source: Identity
    extents: Extents = ()
    ends: bytes = b""

    @property
    def data(self) -> int:
        """Bytes of data: what it has without its holes."""
        return sum(end - first for first, end in self.extents) if self.extents else self.size

    def chunk(self, index: int) -> bytes:
        """The digest of one chunk."""
        return self.chunks[index * WIDTH : (index + 1) * WIDTH]


class Link(NamedTuple):
    """A symbolic link in the folder. `text` is relative and leads to something inside of it."""

    name: str
    text: str


class Ledger(NamedTuple):
    """What a folder holds. `seal` names this very ledger in the stamp cache."""

    key: str
    parts: Parts
    digest: str
    files: tuple[Record, ...]
    at: float = 0.0
    seal: str = ""
    links: tuple[Link, ...] = ()
    about: About = {}  # noqa: RUF012 - nobody writes to it
    version: int = VERSION

    @property
    def total(self) -> int:
        """Bytes of data in all files."""
        return sum(record.data for record in self.files)


def path_of(dst: str) -> str:
    """Where the ledger of a folder is."""
    return f"{dst}/{_NAME}"


def withdraw(held: Held) -> bool:
    """Take the ledger of a held folder away, on the disk when this returns; False when it had none."""
    had_one = held.unlink(_NAME)
    if had_one:
        held.flush(OURS)
    return had_one


def read(dst: str) -> Ledger | None:
    """The ledger of a folder, None when there is none. Raises LedgerError when it is damaged or hostile."""
    data = small_file(path_of(dst))
    return None if data is None else parse(data)


def write(dst: str, ledger: Ledger) -> Ledger:
    """Put the ledger in place, on the disk when this returns; returns it with its time and seal.

    Raises LedgerError when nobody would read it. It is not read back: of many files that took as much memory again.
    """
    at = round(time.time(), 3)
    with Held(dst) as held:
        held.replace(_NAME, lambda file: dump({**_value(ledger), "at": at}, file))
    sum32, size = 0, 0
    with open(path_of(dst), "rb") as file:
        while block := file.read(_BLOCK):
            sum32, size = binascii.crc32(block, sum32), size + len(block)
    if size > LIMIT:
        raise LedgerError(f"it has {size} bytes, more than {LIMIT}")
    return ledger._replace(at=at, seal=_seal(sum32, size))


def _seal(sum32: int, size: int) -> str:
    return f"{sum32:08x}-{size}"


def _value(ledger: Ledger) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "key": ledger.key,
        "parts": ledger.parts,
        "digest": ledger.digest,
        "chunk": CHUNK,
        "about": ledger.about,
        "files": [plain(record) for record in ledger.files],
        "links": [{"name": link.name, "text": link.text} for link in ledger.links],
    }


def parse(data: bytes) -> Ledger:
    """Check every field of a ledger. Raises LedgerError."""
    value = as_object(data)
    if value.get("format") != FORMAT:
        raise LedgerError("it is not a sparkbuild ledger")
    version = value.get("version")
    if version not in (1, VERSION) or value.get("chunk") != CHUNK:
        raise LedgerError(f"it has version {version!r}, this sparkbuild reads version {VERSION}")
    key, parts, digest, at, files = (value.get(name) for name in ("key", "parts", "digest", "at", "files"))
    if not (isinstance(key, str) and isinstance(parts, dict) and isinstance(digest, str) and isinstance(files, list)):
        raise LedgerError("key, parts, digest or files are missing")
    links, about = value.get("links", []), value.get("about", {})
    if not isinstance(links, list) or not isinstance(about, dict):
        raise LedgerError("its links or about are damaged")
    records, pointers = tuple(as_record(item, digest) for item in files), tuple(map(as_link, links))
    names = [record.name for record in records] + [link.name for link in pointers]
    if len(set(names)) != len(names):
        raise LedgerError("it names a file twice")
    seal = _seal(binascii.crc32(data), len(data))
    at = at if isinstance(at, float) else 0.0
    # what is in `about` is only shown, and held against its shape before that (nodes/rpc/shapes.py)
    return Ledger(key, parts, digest, records, at, seal, pointers, cast("About", about), version)


# What `safe_name` allows, for messages.
SAFE_NAMES = "printable characters but the backslash, no `.` or `..`, at most 255 bytes between slashes"


def safe_name(name: object) -> bool:
    """True for the name of a file inside the folder: relative, no `..`, nothing of ours, printable, not too long."""
    if not isinstance(name, str) or not 0 < len(name) <= 1024 or not name.isprintable() or "\\" in name:
        return False  # isprintable also refuses the lone surrogates that no file system could take
    steps = name.split("/")
    return steps[0] != OURS and all(step not in ("", ".", "..") and len(step.encode()) <= 255 for step in steps)


def safe_text(name: str, text: object) -> bool:
    """True for the text of a link `name` that is relative and leads to something inside of the folder."""
    if not isinstance(text, str) or not 0 < len(text.encode(errors="replace")) < 4096 or not text.isprintable():
        return False
    leads = os.path.normpath(os.path.join(os.path.dirname(name), text))
    return not text.startswith("/") and leads != ".." and not leads.startswith("../")


def right_extents(extents: Extents, size: int) -> bool:
    """True when they are ascending, do not touch and end inside the file."""
    at = -1
    for first, end in extents:
        if not at < first < end <= size:
            return False
        at = end
    return True


def plain(record: Record) -> dict[str, object]:
    """A record as it is in the ledger."""
    chunks, ends = (binascii.b2a_base64(data, newline=False).decode() for data in (record.chunks, record.ends))
    fields: dict[str, object] = {"name": record.name, "size": record.size, "sha256": record.sha256, "chunks": chunks}
    fields |= {"ends": ends} if ends else {}
    return {**fields, "source": record.source, **({"extents": record.extents} if record.extents else {})}


def as_record(item: object, digest: str) -> Record:
    """Check every field of a record. Raises LedgerError."""
    if not isinstance(item, dict):
        raise LedgerError("an entry of its files is no object")
    name, size, sha256, chunks, source = (item.get(key) for key in ("name", "size", "sha256", "chunks", "source"))
    if not safe_name(name):
        raise LedgerError(f"it names a file {str(name)[:80]!r}, which is not inside the folder")
    if type(size) is not int or not 0 <= size < 1 << 63:  # not isinstance: a bool is an int too
        raise LedgerError(f"the size of {name} is {str(size)[:40]}")
    if not isinstance(sha256, str) or not _HEX.fullmatch(sha256) or not isinstance(source, dict):
        raise LedgerError(f"the sha256 or the source of {name} is missing")
    digests, ends = (_digests(str(name), value) for value in (chunks, item.get("ends", "")))
    if len(digests) != count(size) * WIDTH:
        raise LedgerError(f"{name} has {len(digests) // WIDTH} chunk digests, its size wants {count(size)}")
    if len(ends) % WIDTH:
        raise LedgerError(f"the digests of the ends of {name} are damaged")
    extents = _extents(item.get("extents", []), size, str(name))
    return Record(str(name), size, sha256, digests, digest, source, extents, ends)


def _digests(name: str, value: object) -> bytes:
    try:
        return binascii.a2b_base64(value) if isinstance(value, str) else b""
    except ValueError as error:
        raise LedgerError(f"the digests of {name} are damaged") from error


def _extents(value: object, size: int, name: str) -> Extents:
    if isinstance(value, list) and all(
        isinstance(pair, list) and list(map(type, pair)) == [int, int] for pair in value
    ):
        extents = tuple((first, end) for first, end in value)
        if right_extents(extents, size):
            return extents
    raise LedgerError(f"the extents of {name} are damaged")


def as_link(item: object) -> Link:
    """Check a link. Raises LedgerError."""
    name, text = (item.get("name"), item.get("text")) if isinstance(item, dict) else (None, None)
    if not safe_name(name):
        raise LedgerError(f"it names a link {str(name)[:80]!r}, which is not inside the folder")
    if not safe_text(str(name), text):
        raise LedgerError(f"the link {name} leaves the folder")
    return Link(str(name), str(text))


def small_file(path: str) -> bytes | None:
    """A small file of ours in one read; a link, a pipe, or a file grown out of all proportion, is refused."""
    with questions.asking(path):
        return _small_file(path)


def _small_file(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LedgerError("it is a symbolic link") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError("it is no regular file")
        size = status.st_size
        if size > LIMIT:
            raise LedgerError(f"it has {size} bytes, more than {LIMIT}")
        return os.read(fd, size + 1)
    finally:
        os.close(fd)


def as_object(data: bytes) -> dict[str, object]:
    """A JSON object. Raises LedgerError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # RecursionError: a file of 100,000 opening brackets
        raise LedgerError("it is cut short or damaged: no JSON") from error
    if not isinstance(value, dict):
        raise LedgerError("it is no JSON object")
    return value
