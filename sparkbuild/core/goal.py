"""A goal: one thing to make true, on one node, in one exact state.

Its name is `scheme://node/path`, and `scheme://node/path@key` for one exact state of it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.core.key import Key

SCHEMES = ("artifact", "source", "archive", "image", "staged", "export", "lane", "report")

DOWNLOADS = ("artifact", "source")  # made only for what is made from them; shown only where somebody asks


class Uri(msgspec.Struct, frozen=True, order=True):
    """A goal's name. `node` is a node, or the cluster for goals that span one."""

    scheme: str
    node: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.node}/{self.path}"

    def at(self, short_key: str) -> str:
        """The name of this goal in one exact state, as it stands in doit's targets and file_dep."""
        return f"{self.scheme}://{self.node}/{self.path}@{short_key}"


def is_uri(text: str) -> bool:
    """True for `scheme://...` of a scheme we know; file paths never match."""
    scheme, sep, _ = text.partition("://")
    return bool(sep) and scheme in SCHEMES


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
