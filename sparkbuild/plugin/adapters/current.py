"""The one workspace of this process, for what doit makes itself and hands nothing to: tasks, and their actions."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.app.opened import Opened
from sparkbuild.nodes.local.early import Early


class _Current:
    opened: Opened | None = None
    listing = False  # `doit list` prints goals without paying for a thousand doit tasks


current = _Current()


def opened(early: Early | None = None) -> Opened:
    """The current folder's workspace, read by the first who asks: doit changes to the dodo file's folder before."""
    if current.opened is None:
        current.opened = Opened(Path.cwd().resolve(), early)
    return current.opened
