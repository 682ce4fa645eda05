"""A goal: one thing to make true, on one node, in one exact state."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.core.key import Key
from sparkbuild.core.uri import Uri


class Input(msgspec.Struct, frozen=True):
    """A local file the key was computed from: path relative to the workspace, and its sha256 then."""

    path: str
    sha256: str


class Goal(msgspec.Struct, frozen=True, eq=False):
    """What should be, as pure data; goals are made without looking at the world.

    `transient`: made only on demand of something that consumes it (a downloaded artifact), so its absence alone
    makes nothing stale. `spec` is the domain's own typed description, read by nobody else.
    """

    task: str
    uri: Uri
    key: Key
    doc: str
    spec: Any = None
    needs: tuple[Goal, ...] = ()
    inputs: tuple[Input, ...] = ()
    pools: tuple[str, ...] = ()
    transient: bool = False
    hosts: tuple[str, ...] = ()
    target: str = ""

    def __post_init__(self) -> None:
        """`target` is the goal in its exact state, as doit knows it; made once, since every look-up goes by it."""
        msgspec.structs.force_setattr(self, "target", self.uri.at(self.key.short))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that must be asked about the goal, in rank order: `hosts`, by default its one node."""
        return self.hosts or (self.uri.node,)

    @property
    def node(self) -> str:
        """The node (or cluster) the goal lives on."""
        return self.uri.node
