"""Shapes of what a node says of the data, images and disks that it has; see shapes.py."""

from __future__ import annotations

from typing import Any, TypedDict

from sparkbuild.nodes.rpc.laneshapes import Time


class _Problem(TypedDict):
    file: str
    text: str


class _Lack(_Problem):
    bytes: int


class _Checked(TypedDict):
    bytes: int
    whole: list[str]


class _Staged(TypedDict):
    present: bool
    key: str
    bytes: int
    problems: list[_Lack]
    checked: _Checked


class Staged(_Staged, total=False):
    """What is staged; see agent.stage.verify."""

    parts: dict[str, Any]
    about: dict[str, Any] | None
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


class Venv(TypedDict):
    """An image that is a venv; see agent.image.look."""

    present: bool
    python: str
    bytes: int


class Layers(TypedDict):
    """An image in docker, or as an archive; see agent.docker.images and agent.image.archives."""

    present: bool
    layers: list[str]
    bytes: int


class Source(TypedDict):
    """An exported source; see agent.git.exported."""

    present: bool
    bytes: int
    files: int


class Artifact(TypedDict):
    """An artifact; see agent.store.artifacts."""

    present: bool
    bytes: int


class _Other(TypedDict, total=False):
    parts: dict[str, Any] | None


class _Found(TypedDict):
    files: int
    bytes: int


class _Evicted(TypedDict):
    at: Time
    # "for" is a word of Python: it is passed on, and shown as it is


class _Absent(TypedDict):
    present: bool


class Absent(_Absent, total=False):
    """What is not there, or could not be looked at: of any kind."""

    problem: str | None
    refused: dict[str, str]
    bytes: int
    other: _Other | None
    parts: dict[str, Any] | None
    busy: str
    begun: bool
    before: str
    here: bool
    evicted: _Evicted
    found: _Found
    to_write: int | None
    wanted: int | None
    about: dict[str, Any] | None
    silent: str
    next: str
    engine: dict[str, Any]
    missing: list[str] | None
    arrived: int


class _Old(TypedDict):
    reference: str
    bytes: int


class Pruned(TypedDict, total=False):
    """See agent.docker.prune."""

    old: list[_Old]
    used: dict[str, list[str]]
    spared: list[str]
    cache: int
    silent: str
    next: str
    absent: bool


class _Room(TypedDict):
    free: int | None
    total: int | None
    device: str
    held: int


class Room(TypedDict):
    """See agent.machine.room."""

    rooms: dict[str, _Room]


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


class _Linked(TypedDict):
    dst: str
    folders: list[str]


class Inventory(TypedDict):
    """See agent.evict.inventory."""

    folders: list[_Folder]
    exports: list[_Linked]


class Network(TypedDict):
    """See agent.machine.network."""

    interfaces: list[dict[str, Any]]
    hcas: list[dict[str, Any]]
