"""Room for what would be staged: how much is free where a folder is, or would be, and what of it is taken already."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.machine.together import together

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import Room, RoomAsk, RoomFact
    from sparkbuild.agent.wire.verbs import Placed

    class Query(RoomAsk, Placed):
        """With where."""


_PATIENCE = 5.0  # seconds; a file system that hangs is none to count on
_MOST = 200_000  # files of a folder that are counted


def observe(query: Query) -> RoomFact:
    """See ROOM."""
    looks = {path: partial(look, inside(query["store"], path)) for path in query["paths"]}
    rooms = together(looks, _PATIENCE)
    return {"rooms": {path: _silent(room) if isinstance(room, Exception) else room for path, room in rooms.items()}}


def look(path: str) -> Room:
    """The room of one folder; what is not there yet is looked at by the folder above.

    `held` is what a staging need not take from the disk: it keeps that, mends it in place, or removes it first; an
    interrupted one goes on with it, and what other tools made is adopted.
    """
    place, exists = path, os.path.isdir(path)
    while not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    disk = os.statvfs(place)
    return {
        "exists": exists,
        "free": disk.f_bavail * disk.f_frsize,
        "total": disk.f_blocks * disk.f_frsize,
        "device": str(os.stat(place).st_dev),
        "held": _held(path) if exists else 0,
        "problem": "",
    }


def _held(path: str) -> int:
    """Bytes of a folder's own files, also of those with more names; of these, `expected` says which do not go."""
    left, folders, held = _MOST, [path], 0
    while folders and left > 0:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    held += entry.stat(follow_symlinks=False).st_blocks * 512
    return held


def _silent(error: Exception) -> Room:
    problem = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return {"exists": None, "free": None, "total": None, "device": "", "held": 0, "problem": problem}
