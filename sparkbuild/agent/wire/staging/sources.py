"""What a folder is staged from, by its kind, and what that source was found to be."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

# "even", "heads", [[first row, end], ...] with one range for each rank, or such a list by layer
Split = str | Sequence[Sequence[int]] | Mapping[str, Sequence[Sequence[int]]]


class Artifact(TypedDict):
    """An artifact of the store: its path there, what it is called (an archive by its ending), globs over the names in
    it, and its sha256 in hex.
    """

    kind: Literal["artifact"]
    archive: str
    name: str
    members: list[str]
    sha256: str


class Folder(TypedDict):
    """A plain folder; globs over paths in it: `members` (all when empty), and of these not `skip`."""

    kind: Literal["folder"]
    path: str
    members: list[str]
    skip: list[str]


class HubMirror(TypedDict):
    """One revision (a ref or a commit) of "org/name" in a folder that has models--*, without what `skip` names."""

    kind: Literal["hub-mirror"]
    cache: str
    repo: str
    revision: str
    skip: list[str]


class _Rows(TypedDict):
    kind: Literal["packed", "page15", "sparse-copy"]
    split: Split
    tp: int
    rank: int
    layers: list[int]
    revision: str


class Rows(_Rows, total=False):
    """The rows of one rank of `tp`: of the folder `model`, or of `repo` in a hub `cache`; the tables of `layers`, []
    for those of config.json. `complete_shard`: copy the other tensors of their shards, too.
    """

    model: str
    cache: str
    repo: str
    complete_shard: bool


class ListedSource(TypedDict, total=False):
    """Where a listed file is read from. `id` names it by content: an artifact's sha256, a commit."""

    kind: str
    path: str
    member: str
    text: str
    version: str
    id: str


class ListedFile(TypedDict, total=False):
    """A file that is named one by one, and what is known of it; extents are half-open ranges of bytes."""

    name: str
    source: ListedSource
    size: int
    sha256: str
    sha1: str
    extents: list[tuple[int, int]]


class Listed(TypedDict):
    """Files one by one, and links {"name", "text"}."""

    kind: Literal["list"]
    files: list[ListedFile]
    links: list[dict[str, str]]


What = Artifact | Folder | HubMirror | Rows | Listed


class _Skipped(TypedDict):
    files: int


class Skipped(_Skipped, total=False):
    """What `skip` leaves out; bytes None where the source does not tell the size of each file."""

    bytes: int | None


class Table(TypedDict, total=False):
    """A lookup table of rows: `ranges` of all ranks, `bytes` of the file of each rank, in the rank's `file`; `weight`
    and `scale` are the bytes of the rank's rows in the shard, half-open.
    """

    rows: int
    ranges: list[tuple[int, int]]
    bytes: list[int]
    file: str
    shard: str
    shard_bytes: int
    blob: str
    header_sha256: str
    weight: list[int]
    scale: list[int]


class Shard(TypedDict):
    """A sparse copy of a shard: its size, and the bytes of data in the copy."""

    bytes: int
    data: int
    blob: str


class About(TypedDict, total=False):
    """What a source was found to be, for plans and the ledger. `outside`: where links lead that leave the folder;
    `unused_skip`: globs of `skip` that match nothing; `left_out`: files in folders that tools keep for themselves;
    `unread_tree`: why the hub's list of the commit's files cannot be used.
    """

    repo: str
    commit: str
    ref: str
    files: int
    bytes: int
    skipped: Skipped | None
    outside: dict[str, str]
    unused_skip: list[str]
    left_out: dict[str, int]
    unread_tree: str
    kind: str
    split: Split
    tp: int
    rank: int
    revision: str
    folder: str
    index_sha256: str
    config_sha256: str
    layers: dict[str, list[int]]
    tables: dict[str, Table]
    complete_shard: bool
    shards: dict[str, Shard]
