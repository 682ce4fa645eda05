"""What a node is asked about images in its docker: is one there, what does it lack, which older ones may go."""

from typing import Literal, TypedDict, final

from sparkbuild.agent.wire.receipts import Parts
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb


class EngineRoom(TypedDict):
    """What decides whether an image can be brought to a node: what its docker runs and keeps images in ("overlay2",
    "containerd"), the bytes that are free for docker and for the node's store (None: not known), and whether that is
    the same disk.
    """

    architecture: str
    store: str
    root: str
    free: int | None
    store_free: int | None
    shared: bool


class _LayersAsk(TypedDict):
    reference: str
    layers: list[str]
    sizes: list[int]
    incoming: str


class OwnImageAsk(_LayersAsk):
    """Does docker have an image of ours? `layers` are the diff ids that are known from elsewhere, [] when none are,
    `sizes` theirs in bytes; `incoming` is where in the store blobs arrive.
    """

    kind: Literal["docker"]
    key: str
    architecture: str


class PrebuiltAsk(_LayersAsk):
    """Does docker have an image that others made? `pinned` is its registry's name for it."""

    kind: Literal["prebuilt"]
    pinned: str


@final
class OwnImageQuery(OwnImageAsk, Placed):
    """As the agent gets it."""


@final
class PrebuiltQuery(PrebuiltAsk, Placed):
    """As the agent gets it."""


class ImageFact(TypedDict):
    """It is there, with these layers. `pinned`: also by its registry's name."""

    present: Literal[True]
    bytes: int
    layers: list[str]
    architecture: str
    pinned: bool
    engine: EngineRoom


class ImageAbsent(Absent, total=False):
    """It is not, or `silent` says why docker cannot be asked: that is neither present nor missing. `missing` are those
    of the `layers` that docker lacks (None: they are not known), of which so many bytes have `arrived` in the store.
    `architecture` is that of the image by its registry's name, "" when it is not there.
    """

    silent: str
    next: str
    missing: list[str] | None
    arrived: int
    architecture: str
    parts: Parts | None
    pinned: bool
    engine: EngineRoom


class PrunedAsk(TypedDict):
    """Which older images may go? Of each name stay the `wanted` references and those named last beside them, `keep` in
    all; of the `spared` names all. `prebuilt`: images of registries may go as well; `builds`: this node builds, and
    BuildKit's cache is looked at.
    """

    keep: int
    wanted: list[str]
    spared: list[str]
    prebuilt: bool
    builds: bool


class PrunedQuery(PrunedAsk, Placed):
    """As the agent gets it."""


class OldImage(TypedDict):
    """An image that may go."""

    reference: str
    bytes: int


class PrunedFact(TypedDict, total=False):
    """The images that may go; of those that may not, the containers that use them; the names of which some would go,
    were they not spared; the bytes of BuildKit's cache that may go. Or why docker cannot be asked (`absent`: there is
    none, or none that runs), or the `problem` with what it says.
    """

    old: list[OldImage]
    used: dict[str, list[str]]
    spared: list[str]
    cache: int
    silent: str
    next: str
    absent: bool
    problem: str | None


class PruneResult(TypedDict):
    """References, and the bytes of BuildKit's cache."""

    removed: list[str]
    freed: int


OWN_IMAGE: Look[OwnImageAsk, ImageFact | ImageAbsent] = Look("image", ImageFact, ImageAbsent)
PREBUILT: Look[PrebuiltAsk, ImageFact | ImageAbsent] = Look("image", ImageFact, ImageAbsent)
PRUNED: Look[PrunedAsk, PrunedFact] = Look("pruned", PrunedFact, PrunedFact)
PRUNE: Verb[PrunedAsk, PruneResult] = Verb("prune", PruneResult)
