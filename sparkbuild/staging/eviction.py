"""Which staged data may go, and which is to go, so that what is wanted fits: what no recipe wants first, then what was
served longest ago. Pure.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from pathlib import Path

import msgspec

from sparkbuild.agent.wire.staging.exports import NotExported
from sparkbuild.agent.wire.staging.inventory import ExportFolder, StagedFolder
from sparkbuild.agent.wire.staging.staged import NotStaged, Owner
from sparkbuild.core.goal import Goal


class Folder(msgspec.Struct, frozen=True):
    """A staged folder on a node, as agent.evict.inventory tells of it. `frees` bytes are given back by removing it;
    `total` is what is in it, `exports` are the folders of what is linked to it. Times are unix seconds, 0 for never;
    `used` says which lane or container uses it now; `protect` that the lane that was last launched of its recipe was
    protected. `adopted`: files of others were found in it and are kept. `orphan`: this workspace staged it, and none
    of its recipes names the folder any more.
    """

    node: str
    dst: str
    recipe: str = ""
    block: str = ""
    workspace: str = ""
    total: int = 0
    frees: int = 0
    kept: int = 0
    staged_at: float = 0.0
    served_at: float = 0.0
    device: str = ""
    used: str = ""
    exports: tuple[str, ...] = ()
    orphan: bool = False
    busy: str = ""
    protect: bool = False
    adopted: bool = False
    present: bool = True
    problem: str = ""

    @property
    def used_at(self) -> float:
        """When it was last of use: served from, or staged for that."""
        return max(self.served_at, self.staged_at)


class Need(msgspec.Struct, frozen=True):
    """What is to be written to one file system of one node: by `tasks`, `write` bytes, with `free` bytes there of
    `total`, and `min_free` that must stay free for `keeper`, one of the tasks. `unsized`: of some tasks nobody knows
    yet how much they would write, so that it is more. `each`: the needs of the tasks, where these are several.
    """

    node: str
    device: str
    tasks: tuple[str, ...]
    write: int
    free: int
    total: int
    min_free: int
    keeper: str
    unsized: bool = False
    each: tuple[Need, ...] = ()

    @property
    def singles(self) -> tuple[Need, ...]:
        """The need of each task by itself."""
        return self.each or (self,)

    @property
    def short(self) -> int:
        """Bytes that are missing, 0 when all fits."""
        return max(0, self.write + self.min_free - self.free)


def together(needs: Sequence[Need]) -> Need:
    """The need of several tasks on one disk: all their data, and the most that one of them wants to stay free."""
    if len(needs) == 1:
        return needs[0]
    most = max(needs, key=lambda need: need.min_free)
    return msgspec.structs.replace(
        most,
        tasks=tuple(task for need in needs for task in need.tasks),
        write=sum(need.write for need in needs),
        unsized=any(need.unsized for need in needs),
        each=tuple(needs),
    )


def split(need: Need, could: int) -> tuple[list[Need], list[Need]]:
    """The tasks that will not fit though all that may go went, `could` bytes; and the others, whose business these are
    not: what such a one wants to stay free is not kept for it.
    """
    lost = [single for single in need.singles if single.short > could]
    return lost, [single for single in need.singles if single.short <= could]


class Eviction(msgspec.Struct, frozen=True):
    """What goes for one need: `chosen` is None when nothing that may go is enough. `staying`: what may not, and why;
    `could` are the bytes that all that may go would give back.
    """

    need: Need
    chosen: tuple[Folder, ...] | None
    staying: tuple[tuple[Folder, str], ...] = ()
    could: int = 0

    @property
    def back(self) -> int:
        """The bytes that what goes gives back."""
        return sum(folder.frees for folder in self.chosen or ())


def folders(node: str, found: Iterable[StagedFolder]) -> list[Folder]:
    """From the agent's answer."""
    return [msgspec.convert({**folder, "node": node}, Folder) for folder in found]


def export_folder(node: str, export: ExportFolder) -> Folder:
    """An export, of which nobody is asked how much it frees: that is told of the folders that it is made of."""
    return msgspec.convert({**export, "node": node}, Folder)


def gone(fact: NotStaged | NotExported) -> str:
    """What became of a folder that was evicted; "" when nothing is known of that."""
    evicted = fact.get("evicted")
    if not evicted:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(evicted["at"]))
    return f"was evicted at {when} to make room for {evicted['for']}"


def owner(goal: Goal, root: Path) -> Owner:
    """Whose data a staging makes, for the node's index: the workspace is this machine's folder."""
    recipe, _, block = goal.uri.path.partition("/")
    return Owner(recipe=recipe, block=block, workspace=workspace(root))


def workspace(root: Path) -> str:
    """The name of a workspace in the index of a node that others may use too."""
    return f"{socket.gethostname()}:{root}"


def stays(folder: Folder, wanted: Mapping[str, str], mine: str, unreadable: AbstractSet[str]) -> str:
    """Why a folder may not go, "" when it may. `wanted`: why a folder of this node must stay, by its path; `mine` this
    workspace, in which the recipes `unreadable` are there and cannot be read.
    """
    if folder.dst in wanted:
        return wanted[folder.dst]
    if folder.used:
        return folder.used
    if folder.protect:
        return f"lane {folder.recipe} is protected"
    if folder.workspace == mine and folder.recipe in unreadable:
        return f"recipe {folder.recipe} cannot be read, so it may be wanted"
    if folder.busy:
        return f"it is being staged by another process ({folder.busy})"
    adopted = f"its files were there before; by hand: rm -r {shlex.quote(folder.dst)}" if folder.adopted else ""
    return adopted or folder.problem


def choose(need: Need, candidates: Iterable[Folder]) -> tuple[Folder, ...] | None:
    """The folders to remove: those that no recipe wants, then those that were of use longest ago, and no more than are
    needed; None when all of them would not be enough.
    """
    chosen: list[Folder] = []
    back = 0
    for folder in sorted(candidates, key=lambda folder: (not folder.orphan, folder.used_at, folder.dst)):
        if back >= need.short:
            break
        if folder.frees > 0:
            chosen.append(folder)
            back += folder.frees
    if back < need.short:
        return None
    for folder in reversed(chosen[:]):  # a big one that came late may make an earlier one needless
        if back - folder.frees >= need.short:
            chosen.remove(folder)
            back -= folder.frees
    return tuple(chosen)
