"""Shapes of what a verb ends with; see shapes.py."""

from __future__ import annotations

from typing import Any, TypedDict


class Evictions(TypedDict):
    """Of `evict`."""

    folders: list[dict[str, Any]]
