"""What a node's store is asked for: artifacts, git sources, and blobs that move from store to store."""

from typing import Literal, TypedDict, final

from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb

Pin = tuple[str, int]  # a commit, and its time in unix seconds, 0 when that is not known


class Bytes(TypedDict):
    """How many were moved or written."""

    bytes: int


# -- artifacts -------------------------------------------------------------------------------------------------------


class ArtifactAsk(TypedDict):
    """Is it there, with this content?"""

    sha256: str
    filename: str


class ArtifactQuery(ArtifactAsk, Placed):
    """As the agent gets it."""


class ArtifactFact(TypedDict):
    """It is there, and is what is pinned."""

    present: Literal[True]
    bytes: int


class ArtifactAbsent(Absent, total=False):
    """It is not; `bytes` are those of what lies in its place."""

    bytes: int


class _FetchAsk(TypedDict):
    root: str
    sha256: str
    filename: str
    wheel: str
    url: str


class FetchAsk(_FetchAsk, total=False):
    """A file whose sha256 is known: `wheel` is "name==version" or "", then `url` says where it is. `root` is what
    relative `file:` urls start from. `pinned` is the file of the workspace that says all this, for messages; `others`
    are more urls, each with such a file, which are tried in their order when the url does not give it.
    """

    pinned: str
    others: list[tuple[str, str]]


class FetchRequest(FetchAsk, Placed):
    """As the agent gets it."""


ARTIFACT: Look[ArtifactAsk, ArtifactFact | ArtifactAbsent] = Look("artifact", ArtifactFact, ArtifactAbsent)
FETCH: Verb[FetchAsk, Bytes] = Verb("fetch", Bytes)


# -- git sources -----------------------------------------------------------------------------------------------------


class Submodule(TypedDict):
    """At `path` of the source."""

    path: str
    repository: str
    commit: str
    tree: str


class SourcePatch(TypedDict):
    """`path` is for messages, `text` is base64."""

    path: str
    sha256: str
    text: str


class Source(TypedDict):
    """A git source as its lock has it; `tree` "" and `time` 0: not pinned. `lfs` is "refused" or "pointers"."""

    component: str
    repository: str
    ref: str
    commit: str
    tree: str
    time: int
    lfs: str
    submodules: list[Submodule]
    patches: list[SourcePatch]


class SourceLookAsk(TypedDict):
    """Is the archive of that key there? `pins` are the source's own, and those of its submodules."""

    key: str
    pins: list[Pin]


class SourceQuery(SourceLookAsk, Placed):
    """As the agent gets it."""


class SourceFact(TypedDict):
    """The archive is there as it was exported. `content` is the git tree of what is in it, submodules and patches
    included.
    """

    present: Literal[True]
    bytes: int
    files: int
    content: str
    time: int
    sha256: str


class SourceAbsent(Absent, total=False):
    """It is not; `bytes` are those of what lies in its place."""

    bytes: int


class SourceAsk(TypedDict):
    """Export a source. `root` is what relative `file:` urls start from, `lock` the lock's name, for messages."""

    root: str
    key: str
    lock: str
    source: Source


class SourceRequest(SourceAsk, Placed):
    """As the agent gets it."""


class SourceResult(TypedDict):
    """As in SourceFact."""

    bytes: int
    sha256: str
    content: str
    files: int
    time: int


SOURCE: Look[SourceLookAsk, SourceFact | SourceAbsent] = Look("source", SourceFact, SourceAbsent)
EXPORT_SOURCE: Verb[SourceAsk, SourceResult] = Verb("source", SourceResult)


# -- what a lock would pin of a repository ---------------------------------------------------------------------------


class _Repository(TypedDict):
    root: str
    url: str


class RefsAsk(_Repository):
    """Where are the default branch, all branches and all tags now?"""

    action: Literal["refs"]


class CheckAsk(_Repository):
    """What is a commit, as the repository gives it out now? `ref` is asked for where it gives out no single commits."""

    action: Literal["check"]
    commit: str
    ref: str


class PinAsk(_Repository):
    """Fetch a branch, a tag or a commit (`ref`); `old` is the commit that is locked now, or ""."""

    action: Literal["pin"]
    ref: str
    old: str


class RefsRequest(RefsAsk, Placed):
    """As the agent gets it."""


class CheckRequest(CheckAsk, Placed):
    """As the agent gets it."""


class PinRequest(PinAsk, Placed):
    """As the agent gets it."""


class RefsResult(TypedDict):
    """Objects by the whole names of refs; of tags also the commit, as `<name>^{}`."""

    refs: dict[str, str]


class CheckResult(TypedDict):
    """The commit's tree, and its time in unix seconds."""

    tree: str
    time: int


class News(TypedDict):
    """Of the commits since the old one: the newest subjects, how many there are, and what else is to be said."""

    subjects: list[str]
    count: int
    told: str


class PinResult(News):
    """What the lock gets, and what is new."""

    commit: str
    tree: str
    time: int
    submodules: list[Submodule]


REFS: Verb[RefsAsk, RefsResult] = Verb("pins", RefsResult)
CHECK: Verb[CheckAsk, CheckResult] = Verb("pins", CheckResult)
PIN: Verb[PinAsk, PinResult] = Verb("pins", PinResult)


# -- bytes from elsewhere --------------------------------------------------------------------------------------------


class PutAsk(TypedDict):
    """A file whose bytes follow the request; `path` is in the store."""

    path: str
    sha256: str
    size: int


class PutRequest(PutAsk, Placed):
    """As the agent gets it."""


class BlobSize(TypedDict):
    """A file by its content; the size is in bytes."""

    sha256: str
    size: int


class Place(TypedDict):
    """Where somebody listens."""

    host: str
    port: int


class _BlobsAsk(TypedDict):
    folder: str
    blobs: list[BlobSize]


class RelayAsk(_BlobsAsk):
    """Have the blobs in a folder of the store, in their order, from the best of `sources` first, and give them out on
    the addresses `listen` to who knows the token, until stdin ends. Without sources they must be there.
    """

    token: str
    listen: list[str]
    sources: list[Place]


class ClearAsk(_BlobsAsk):
    """Remove these blobs, and others that were left long ago."""

    clear: Literal[True]


@final
class RelayRequest(RelayAsk, Placed):
    """As the agent gets it."""


@final
class ClearRequest(ClearAsk, Placed):
    """As the agent gets it."""


class ClearResult(TypedDict):
    """Bytes."""

    removed: int


PUT: Verb[PutAsk, Bytes] = Verb("put", Bytes)
CLEAR: Verb[ClearAsk, ClearResult] = Verb("relay", ClearResult)
