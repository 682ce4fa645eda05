"""A peer that a node does not reach."""

from __future__ import annotations

from typing import TypedDict


class Unreachable(TypedDict):
    """A peer that cannot be reached from a node, and how that shows."""

    peer: str
    problem: str
