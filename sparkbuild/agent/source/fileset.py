"""What a staging request wants: each file's name in the folder, where its bytes are, and what they are by content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from sparkbuild.agent.ledger.identity import forms
from sparkbuild.agent.ledger.ledger import Extents, Identity, Link, Record

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import About


class _FileBytes(TypedDict):
    kind: Literal["file"]
    path: str


class FileBytes(_FileBytes, total=False):
    """A file at a path; `version`: see versions, "" for whichever is there."""

    version: str


class MemberBytes(TypedDict):
    """A member of a zip archive."""

    kind: Literal["zip-member"]
    path: str
    member: str


class TextBytes(TypedDict):
    """A text that is known."""

    kind: Literal["text"]
    text: str


class RowBytes(TypedDict):
    """Rows [lo, hi) of `rows` of a layer's table in a shard, laid out anew (rows.source); `weight` and `scale` are the
    first bytes of row 0 in the shard, `link` the text of the shard's link.
    """

    kind: Literal["packed", "page15"]
    path: str
    version: str
    link: str
    layer: int
    lo: int
    hi: int
    rows: int
    weight: int
    scale: int
    shard_bytes: int
    header_bytes: int
    header_sha256: str


Bytes = FileBytes | MemberBytes | TextBytes | RowBytes


class Wanted(NamedTuple):
    """One file. `source` says where its bytes are, `identity` what it is by content ({} when nobody can say),
    never a path. `sha256` and `sha1` (of a git blob) in hex when they are known beforehand, else "".

    `extents` make it a sparse file: only these half-open ranges of bytes are data, the rest stays a hole. Its sha256 is
    over the bytes of the extents in order; the digest of a chunk is over the whole chunk, with zeros in the holes.
    `title` is what messages call it, where that is not its name. `again` is how to fetch its source anew, when that has
    another content than is known.
    """

    name: str
    source: Bytes
    size: int
    sha256: str
    identity: Identity
    sha1: str = ""
    extents: Extents = ()
    title: str = ""
    again: str = ""

    @property
    def called(self) -> str:
        """What messages call it."""
        return self.title or self.name

    @property
    def is_its_source(self) -> bool:
        """Is it the file of its source, byte for byte? Else no sha256 of the one is one of the other."""
        return self.source["kind"] == "file" and self.extents in ((), ((0, self.size),))

    @property
    def path(self) -> str:
        """Where its source is, "" for a text."""
        return "" if self.source["kind"] == "text" else self.source["path"]

    @property
    def read_from(self) -> Identity:
        """What the chunks of a part must have been read from, for the part to be resumed. Where no digest of the whole
        will tell, that is one version of the source, whatever else names its content.
        """
        version = self.source.get("version")
        if not version or not self.identity or self.sha256 or self.sha1 or self.identity.get("version") == version:
            return self.identity
        return {**self.identity, "version": version}

    def is_in(self, record: Record | None) -> bool:
        """Does this record tell of the same content? Sizes and times prove nothing, so they are not asked."""
        if record is None or record.size != self.size or record.extents != self.extents:
            return False
        if self.sha256:
            return record.sha256 == self.sha256
        return bool(self.identity) and record.source in forms(self.identity)


def text_file(name: str, text: str) -> Wanted:
    """A file that holds a text."""
    data = text.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    return Wanted(name, TextBytes(kind="text", text=text), len(data), sha256, {"kind": "text", "sha256": sha256})


class FileSet(NamedTuple):
    """What a folder shall hold: files, symbolic links, nothing else of ours. `about` is what the source was found to
    be, for plans and the ledger.
    """

    files: list[Wanted]
    links: Sequence[Link] = ()
    about: About = {}  # noqa: RUF012 - nobody writes to it
