"""Shapes of what a node says of the data, images and disks that it has; see shapes.py."""

from __future__ import annotations

from typing import Any, TypedDict

from sparkbuild.agent.wire.clock import Time


class _Table(TypedDict, total=False):
    ranges: list[tuple[int, int]]
    bytes: list[int]
    file: str
    rows: int
    shard: str


class _Files(TypedDict, total=False):
    files: int
    bytes: int | None  # of what is skipped: None where the source does not tell the size of each


class _About(TypedDict, total=False):
    """What a source is, by the planners of the agent (`Wish.about`)."""

    commit: str
    repo: str
    ref: str
    files: int
    bytes: int
    skipped: _Files | None
    unread_tree: str
    unused_skip: list[str]
    left_out: dict[str, int]
    rank: int
    tables: dict[str, _Table]


class _Problem(TypedDict):
    file: str
    text: str


class _Lack(_Problem):
    bytes: int


class _Checked(TypedDict):
    bytes: int
    whole: list[str]


class _Found(TypedDict):
    files: int
    bytes: int


class _Staged(TypedDict):
    present: bool
    key: str
    bytes: int
    problems: list[_Lack]
    checked: _Checked


class Staged(_Staged, total=False):
    """What is staged; see agent.stage.verify."""

    parts: dict[str, Any]
    about: _About | None
    to_write: int | None
    wanted: int | None
    beside: int | None
    found: _Found | None
    closed: str
    refused: dict[str, str]


class _Mount(TypedDict):
    source: str
    target: str
    read_only: bool


class _Export(TypedDict):
    present: bool
    key: str
    parts: dict[str, Any]
    files: int
    mounts: list[_Mount]
    problems: list[_Problem]


class Export(_Export, total=False):
    """What is exported; see agent.export.look."""

    refused: dict[str, str]


_Evicted = TypedDict("_Evicted", {"at": Time, "for": str})  # "for" is a word of Python


class _Absent(TypedDict):
    present: bool


class Absent(_Absent, total=False):
    """What is not there, or could not be looked at: of any kind."""

    problem: str | None
    refused: dict[str, str]
    hung: dict[str, str]
    bytes: int
    parts: dict[str, Any] | None
    busy: str
    begun: bool
    before: str
    here: bool
    evicted: _Evicted
    found: _Found | None
    to_write: int | None
    wanted: int | None
    beside: int | None
    about: _About | None


class _Folder(TypedDict):
    dst: str
    recipe: str
    block: str
    workspace: str
    exports: list[str]
    total: int
    frees: int
    kept: int
    device: str
    used: str
    busy: str
    problem: str
    staged_at: Time
    served_at: Time
    protect: bool
    adopted: bool
    present: bool


class _Linked(TypedDict):
    dst: str
    folders: list[str]


class Inventory(TypedDict):
    """See agent.evict.inventory."""

    folders: list[_Folder]
    exports: list[_Linked]
