"""Pythons of the machine that nodes can see: the system's in /usr, and those that live elsewhere, shared read-only."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def shared() -> list[str]:
    """Folders outside /usr with Pythons in them: where ours comes from, and what pyenv has."""
    places = [Path(sys.base_prefix), Path.home() / ".pyenv/versions"]
    real = {str(place) for place in places if place.is_dir() and not place.is_relative_to("/usr")}
    return sorted(one for one in real if not any(one.startswith(f"{other}/") for other in real))


def find(version: str) -> str | None:
    """The path of a Python of that version ("3.12"), the same on every node; None when the machine has none."""
    system = Path(f"/usr/bin/python{version}")
    if system.exists():
        return str(system)
    for place in shared():
        for pattern in (f"bin/python{version}", f"{version}.*/bin/python{version}"):
            for found in sorted(Path(place).glob(pattern)):
                if os.access(found, os.X_OK):
                    return str(found)
    return None
