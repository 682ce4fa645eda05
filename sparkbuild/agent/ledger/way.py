"""The way to the names in a folder: what stands on it where only folders of this folder may be.

A sub-folder that was moved to a bigger disk and is a link since, or has a disk mounted on it, is left as it is, with
all that is behind it: what was staged is told to be out of its place, by plan and verify too, and nothing goes or is
written there. A file system of its own would not take a finished file by a rename anyway.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sparkbuild.agent.disk import questions
from sparkbuild.agent.wire.protocol import AgentError


class Detour(NamedTuple):
    """A step that is no folder of this folder: what it is in words, and where it leads, "" when it leads nowhere.
    `mounted`: another file system is mounted on it.
    """

    found: str
    leads: str = ""
    mounted: bool = False


def steps(names: Iterable[str]) -> list[str]:
    """The folders that names are in, those above first."""
    folders = {os.path.dirname(name) for name in names}
    return sorted({above[:at] for above in folders for at, letter in enumerate(f"{above}/") if letter == "/" and at})


def detours(dst: str, names: Iterable[str]) -> dict[str, Detour]:
    """The steps to these names that are no folders of `dst`, by name; what is behind one is not looked at. A step that
    is not there yet is none.
    """
    by_step: dict[str, Detour] = {}
    folders = steps(names)
    try:
        device = os.stat(dst).st_dev if folders else 0
    except OSError:
        return by_step
    for step in questions.asking_each(dst, folders):
        if not behind(step, by_step):
            detour = _look(f"{dst}/{step}", device)
            if detour is not None:
                by_step[step] = detour
    return by_step


def behind(name: str, found: Collection[str]) -> str:
    """Which of these steps is on the way to a name, "" when none is."""
    if not found:
        return ""
    return next((name[:at] for at, letter in enumerate(name) if letter == "/" and name[:at] in found), "")


def out_of_place(dst: str, step: str, detour: Detour) -> str:
    """What is wrong with a file behind a step, in words that follow its name."""
    return f"is not in its folder: {dst}/{step} is {detour.found}"


def refused(dst: str, step: str, detour: Detour) -> AgentError:
    """Why nothing is staged behind a step, removed or checked, and how to have it again."""
    path = shlex.quote(f"{dst}/{step}")
    mends = "move it away"
    if detour.leads:
        back = f"rm {path} && mv {shlex.quote(detour.leads)} {path}"
        mends = f"on that node: {back}; or move all of {dst} to that disk, and correct `dst` of the block"
    elif detour.mounted:
        mends = f"on that node: umount {path}; or have all of {dst} on that disk, and correct `dst` of the block"
    return AgentError(
        "a folder is wanted where something else is",
        kind="config",
        where=f"{dst}/{step}",
        found=f"{detour.found}; nothing behind it was changed",
        wanted=f"a folder on the same file system as {dst}, or nothing yet",
        next=mends,
    )


def _look(path: str, device: int) -> Detour | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return None if status.st_dev == device else Detour("a mount of another file system", mounted=True)
    if not stat.S_ISLNK(status.st_mode):
        return Detour("a file")
    text = os.readlink(path)
    leads = os.path.realpath(path)
    return Detour(f"a symbolic link to {text}", leads if os.path.isdir(leads) else "")
