"""Whose a staged folder is, kept in the folder itself: `.sparkbuild/owner.json`, so that who comes by another spelling
of its path, through a link, or from another workspace with another store sees it. Written with the entry of the index.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk.files import dump, read_json
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import index
from sparkbuild.agent.wire.layout import OURS, OWNER_FILE
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging import staged

FORMAT = "sparkbuild-owner/v1"
_NAME = f"{OURS}/{OWNER_FILE}"
_LONGEST = 64 << 10  # bytes of a record that anyone would read


class Owner(NamedTuple):
    """Who staged what into a folder, `dst` as its owner calls it; 0 until all of it was whole for the first time."""

    dst: str
    recipe: str
    block: str
    workspace: str
    key: str
    staged_at: float = 0.0

    @property
    def called(self) -> str:
        """What messages call it."""
        return f"{self.recipe}:{self.block.replace('/', ':')} of workspace {self.workspace}"


def path_of(dst: str) -> str:
    """Where the record of a folder is."""
    return f"{dst}/{_NAME}"


def read(dst: str) -> Owner | None:
    """The owner of a folder, None when nobody is known to be."""
    record = read_json(path_of(dst), _LONGEST) or {}
    fields = {name: record.get(name) for name in Owner._fields}
    at = fields.pop("staged_at")
    if record.get("format") != FORMAT or not isinstance(at, int | float):
        return None
    if not all(isinstance(text, str) and text.isprintable() for text in fields.values()):
        return None
    return Owner(**{name: str(text) for name, text in fields.items()}, staged_at=at)


def write(dst: str, owner: Owner | None) -> None:
    """Keep it; None: nobody's any more."""
    if owner is not None:
        value = {"format": FORMAT, **owner._asdict()}
        with Held(dst) as held:
            held.replace(_NAME, lambda file: dump(value, file))
        return
    with Held(dst) as held:
        held.unlink(_NAME)


def conflict(request: staged.ClaimRequest, dst: str) -> AgentError | None:
    """Why a goal may not have the folder: it is another's that stages other data, through whatever links, or one is
    inside the other. None when it may, and of a request without an owner. A workspace of this machine that is
    gone owns nothing.
    """
    owner, key = request.get("owner"), request.get("key", "")
    if owner is None:
        return None
    real = os.path.realpath(dst)
    other = read(real)
    if other is not None and other.key != key and not _is_mine(other, owner, dst) and not _is_gone(other):
        return _refused(dst, real, other, "the folder to stage into holds other staged data")
    above = os.path.dirname(real)
    while above != os.path.dirname(above):
        other = read(above)
        if other is not None and not _is_same(other, owner) and not _is_gone(other):
            return _refused(dst, above, other, "the folder to stage into is inside of other staged data")
        above = os.path.dirname(above)
    for entry in index.entries(request.get("store", "")):
        inner = os.path.realpath(entry.dst)
        other = read(inner) if inner.startswith(f"{real}/") else None
        if other is not None and not _is_same(other, owner) and not _is_gone(other):
            return _refused(dst, inner, other, "other staged data is inside of the folder to stage into")
    return None


def _is_mine(other: Owner, owner: staged.Owner, dst: str) -> bool:
    """The same block, or another one of the workspace that has the folder now under the same name: which of its
    recipes have which folders a workspace knows itself.
    """
    return _is_same(other, owner) or (other.workspace == owner["workspace"] and other.dst == dst)


def _is_same(other: Owner, owner: staged.Owner) -> bool:
    return (other.recipe, other.block, other.workspace) == (owner["recipe"], owner["block"], owner["workspace"])


def _is_gone(other: Owner) -> bool:
    host, _, folder = other.workspace.partition(":")
    return host == os.uname().nodename and not os.path.isdir(folder)


def _refused(dst: str, path: str, other: Owner, what: str) -> AgentError:
    return AgentError(
        what,
        kind="config",
        where=dst,
        found=f"{path} is of {other.called}" + (f", which calls it {other.dst}" if other.dst != path else ""),
        wanted="a folder of its own for each",
        next=f"give one of the two another `dst` (of an export, `path`); or, where that data is not wanted any more, "
        f"rm {path_of(path)}",
    )
