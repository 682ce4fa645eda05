"""Shapes of what a node says of itself and of its lanes; see shapes.py."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec

from sparkbuild.agent.wire.records import Box, Container, Disk, Memory
from sparkbuild.agent.wire.unreachable import Unreachable

Time = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]  # unix seconds that a calendar has


class ProcessLane(TypedDict):
    """agent.wire.processlane.ProcessLane."""

    recipe: str
    pid: int
    user: str
    store: str
    ours: bool
    ports: list[int]
    since: Time
    gpus: bool


class _Ready(TypedDict):
    seconds: float
    ttft: float


class _Gate(TypedDict):
    id: str
    ok: bool


class _Parts(TypedDict, total=False):
    nodes: list[str]


class _Record(TypedDict):
    parts: _Parts


class Record(_Record, total=False):
    """agent.wire.records.LaneRecord, as far as it is relied on."""

    recipe: str
    runtime: str
    launch: str
    rank: int
    world_size: int
    key: str
    container: str
    pid: int
    host: str
    port: int
    model_id: str
    protect: bool
    lock: str
    log: str
    launched_at: Time
    ready: _Ready | None
    gates: list[_Gate] | None
    served_at: Time | None
    stopped_at: Time | None


class _Holder(TypedDict):
    pid: int
    command: str
    user: str


class Holder(_Holder, total=False):
    """Who listens on a port; see agent.machine.procs.holder."""

    lane: str
    container: str


class _Lane(TypedDict):
    record: Record | None
    alive: bool


class Lane(_Lane, total=False):
    """agent.wire.records.LaneFact."""

    state: str
    left: list[Box]
    stranger: str
    others: list[str]
    foreign: list[Box]
    elsewhere: list[ProcessLane]
    unread: list[str]
    docker_problem: str
    listening: bool
    answers: bool
    again: str
    frozen: bool
    served_ids: list[str]
    problem: str
    port_holder: Holder | None
    last_lines: list[str]


class LaneRow(TypedDict):
    """agent.wire.records.LaneRow."""

    recipe: str
    alive: bool | None
    ready: bool
    launched_at: Time
    served_at: Time | None
    stopped_at: Time | None
    rank: int
    container: str
    launch: str
    nodes: list[str]
    again: str


class _Docker(TypedDict):
    present: bool
    problem: str
    version: str
    containers: list[Container]


class Docker(_Docker, total=False):
    """agent.wire.records.DockerFact."""

    arch: str
    images: dict[str, dict[str, Any] | None]


class _Interface(TypedDict):
    name: str


class Interface(_Interface, total=False):
    """agent.wire.records.Interface, as far as it is relied on."""

    up: bool
    speed_mbit: int
    addresses: list[str]


class _Gid(TypedDict, total=False):
    index: int
    gid: str
    type: str


class Hca(TypedDict, total=False):
    """agent.wire.records.Hca, as far as it is relied on."""

    name: str
    active: bool
    interface: str
    gids: list[_Gid]


class Node(TypedDict):
    """agent.wire.records.NodeFact."""

    host: str
    os: str
    os_version: str
    arch: str
    kernel: str
    python: str
    driver: str
    time: Time
    memory: Memory
    disks: dict[str, Disk]
    interfaces: list[Interface]
    hcas: list[Hca]
    docker: Docker
    lanes: list[LaneRow]
    elsewhere: list[ProcessLane]
    unread: list[str]
    strangers: dict[str, str]
    ports: dict[str, Holder | None]
    problems: dict[str, str]


class Preflight(TypedDict, total=False):
    """agent.wire.records.PreflightFact."""

    missing: list[str]
    devices_missing: list[str]
    not_devices: list[str]
    unknown: dict[str, str]
    unreachable: list[Unreachable]
    memory_available: int
