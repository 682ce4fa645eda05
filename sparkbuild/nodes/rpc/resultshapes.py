"""Shapes of what a node says while it works, and of what it ends with; see shapes.py."""

from __future__ import annotations

from typing import Any, TypedDict

from sparkbuild.agent.wire.records import Box
from sparkbuild.nodes.rpc.laneshapes import ProcessLane, Record, Time


class Facts(TypedDict):
    """Of `facts`: each is looked at by itself."""

    facts: list[Any]


class Recorded(TypedDict):
    """A lane, as it is recorded now."""

    record: Record


class _Stop(TypedDict):
    stopped: bool
    pid: int
    killed: bool
    launch: str


class Stop(_Stop, total=False):
    """See agent.lane.stop."""

    nodes: list[str]
    containers: list[Box]
    foreign: list[Box]
    elsewhere: list[ProcessLane]
    docker_problem: str


class Prepared(TypedDict):
    """Of `prepare`: folders of the node, or ""."""

    files: str
    secrets: str


class _Stopping(TypedDict):
    at: Time
    by: str


class Watched(TypedDict, total=False):
    """See agent.lane.watch."""

    alive: bool
    listening: bool
    last_lines: list[str]
    state: str
    launch: str
    stopping: _Stopping | None


class Launched(TypedDict):
    """What launch a log is of."""

    rank: int
    nodes: list[str]


class State(TypedDict, total=False):
    """Of `watch`, while it watches."""

    listening: bool
    lines: list[str]


class Progress(TypedDict):
    """How far it is."""

    phase: str
    bytes: int
    total: int | None


class Log(TypedDict):
    """A line of the log."""

    text: str
