"""What is staged on a node, and its removal, on the wire."""

from typing import TypedDict, final

from sparkbuild.agent.wire.clock import Time
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb


class Entry(TypedDict):
    """A folder of the node's index: for which recipe and block it was staged from which workspace ("host:folder"), and
    when (0: never). `before`: the key that it is being replaced by. `adopted`: files were there before. `mount`,
    `file_system`: the mount point that it lay on when it was staged, and what was mounted there.
    """

    dst: str
    recipe: str
    block: str
    workspace: str
    key: str
    before: str
    bytes: int
    staged_at: Time
    served_at: Time
    adopted: bool
    mount: str
    file_system: str


class Holding(Entry):
    """`present`: it has a ledger, by which it has `total` bytes of data. `frees`: bytes that the disk gets back when it
    goes with its `exports`; `kept`: bytes of files that have other names still. `used`: which lane or container uses
    any of these now; `busy`: who stages into it.
    """

    present: bool
    total: int
    frees: int
    kept: int
    exports: list[str]
    device: str
    used: str
    busy: str
    problem: str


class StagedFolder(Holding):
    """`protect`: the lane that was last launched of its recipe was protected."""

    protect: bool


class ExportFolder(Entry):
    """An export, and the staged folders that it is made of."""

    folders: list[str]


class InventoryAsk(TypedDict, total=False):
    """`dsts`: of these folders alone. `hurry`: see disk.patience."""

    dsts: list[str]
    hurry: bool


class InventoryQuery(InventoryAsk, Placed):
    """To the agent."""


class InventoryFact(TypedDict):
    """An export goes with the folders that it is made of."""

    folders: list[StagedFolder]
    exports: list[ExportFolder]


@final
class NoInventory(Absent):
    """It could not be made."""


INVENTORY: Look[InventoryAsk, InventoryFact | NoInventory] = Look("inventory", InventoryFact, NoInventory)

# folders to remove, what room is made "for" (a word of Python), and folders that are never to be removed
EvictAsk = TypedDict("EvictAsk", {"dsts": list[str], "for": str, "keep": list[str]})


class EvictRequest(EvictAsk, Placed):
    """To the agent."""


class Removed(TypedDict):
    """What a removal gave back: bytes, names, and what is not ours and stays: some of its names, and how many."""

    freed: int
    files: int
    left: list[str]
    others: int


class Eviction(Removed):
    """`refused`: why the folder is left as it is, "" when it was removed."""

    dst: str
    refused: str


class EvictResult(TypedDict):
    """In the order asked for."""

    folders: list[Eviction]


EVICT: Verb[EvictAsk, EvictResult] = Verb("evict", EvictResult)
