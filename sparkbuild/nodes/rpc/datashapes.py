"""Shapes of what a node says of the data, images and disks that it has; see shapes.py."""

from __future__ import annotations

from typing import Any, TypedDict

from sparkbuild.nodes.rpc.laneshapes import Hca, Interface


class _Absent(TypedDict):
    present: bool


class Absent(_Absent, total=False):
    """What is not there, or could not be looked at: of any kind."""

    problem: str | None
    refused: dict[str, str]
    hung: dict[str, str]
    bytes: int
    parts: dict[str, Any] | None


class _Room(TypedDict):
    free: int | None
    total: int | None
    device: str
    held: int


class Room(TypedDict):
    """See agent.machine.room."""

    rooms: dict[str, _Room]


class Network(TypedDict):
    """See agent.machine.network."""

    interfaces: list[Interface]
    hcas: list[Hca]
