"""What a node is asked about images: making them in its store, and what of them is in its store and in its docker."""

from typing import Literal, TypedDict, final

from sparkbuild.agent.wire.receipts import ArchiveReceipt, GateResult, Parts
from sparkbuild.agent.wire.store import Bytes
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb


class OtherKey(TypedDict):
    """The newest image of the name with another key: what the new one differs from."""

    parts: Parts


class _Keyed(TypedDict):
    name: str
    key: str


# -- venvs -----------------------------------------------------------------------------------------------------------


class VenvLookAsk(_Keyed):
    """Is the environment of that key there?"""


@final
class VenvQuery(VenvLookAsk, Placed):
    """As the agent gets it."""


class VenvFact(TypedDict):
    """Built with this key, the interpreter it links to still there, and every file as it was built."""

    present: Literal[True]
    python: str
    bytes: int


class VenvAbsent(Absent, total=False):
    """No such environment, or not as it was built."""

    other: OtherKey | None


class _VenvAsk(_Keyed):
    parts: Parts
    requirements: str
    files: dict[str, str]
    imports: list[str]
    python: str


class VenvAsk(_VenvAsk):
    """Build an environment: `requirements` and `files` (by their names) are texts, `imports` must import in it,
    `python` is the least version. `offline`: pip asks no index, and takes the wheels from <store>/wheels.
    """

    offline: bool


class VenvRequest(VenvAsk, Placed):
    """As the agent gets it."""


VENV_IMAGE: Look[VenvLookAsk, VenvFact | VenvAbsent] = Look("image", VenvFact, VenvAbsent)
VENV: Verb[VenvAsk, Bytes] = Verb("venv", Bytes)


# -- docker images in a store ----------------------------------------------------------------------------------------


class BuildEngine(TypedDict, total=False):
    """What docker on a build node makes images for; or why it cannot be asked, and what to do."""

    architecture: str
    silent: str
    next: str


class ArchiveAsk(_Keyed, total=False):
    """Is the image of that key in the store? With `builds`, it is to be built by the node's docker, as `reference`."""

    builds: bool
    reference: str


class ArchiveQuery(ArchiveAsk, Placed):
    """As the agent gets it."""


class ArchiveFact(TypedDict):
    """Its receipt is there, and each layer is what was written."""

    present: Literal[True]
    bytes: int
    layers: list[str]
    gates: list[GateResult]


class ArchiveAbsent(Absent, total=False):
    """It is not; `bytes` are those of the layers that are lacking. Of an image that is to be built: what docker says of
    itself, and whether it has it as it was built, so that only the export is lacking.
    """

    bytes: int
    other: OtherKey | None
    engine: BuildEngine
    built: bool


class _MakeAsk(_Keyed):
    reference: str
    parts: Parts
    lock: str


class DebFile(TypedDict):
    """A Debian package: an artifact of the store."""

    sha256: str
    filename: str


class AssembleAsk(_MakeAsk):
    """Put an image together. `requirements` is a text, "" for none; `files` are base64 by their names, and go into
    `folder`.
    """

    platform: str
    python: str
    debs: list[DebFile]
    requirements: str
    folder: str
    files: dict[str, str]
    env: dict[str, str]
    entrypoint: list[str]
    command: list[str]


class AssembleRequest(AssembleAsk, Placed):
    """As the agent gets it."""


class _ExportAsk(_MakeAsk):
    gates: list[GateResult]


class ExportAsk(_ExportAsk, total=False):
    """Take an image of docker into the store. `prebuilt`: others made it, and it has no label of ours."""

    prebuilt: bool


class ExportRequest(ExportAsk, Placed):
    """As the agent gets it."""


class ExportResult(TypedDict):
    """Bytes of the layers, and their diff ids."""

    bytes: int
    layers: list[str]


class DescribeAsk(_Keyed):
    """What is it made of?"""


class DescribeRequest(DescribeAsk, Placed):
    """As the agent gets it."""


class DescribeResult(TypedDict):
    """The receipt, and the config as a text."""

    receipt: ArchiveReceipt
    config: str


ARCHIVE: Look[ArchiveAsk, ArchiveFact | ArchiveAbsent] = Look("archive", ArchiveFact, ArchiveAbsent)
ASSEMBLE: Verb[AssembleAsk, Bytes] = Verb("assemble", Bytes)
EXPORT: Verb[ExportAsk, ExportResult] = Verb("export", ExportResult)
DESCRIBE: Verb[DescribeAsk, DescribeResult] = Verb("describe", DescribeResult)


# -- builds ----------------------------------------------------------------------------------------------------------


class NamedPatch(TypedDict):
    """`text` is base64."""

    name: str
    text: str


class ContextSource(TypedDict):
    """`archive` is a tar in the store, with the sha256 that receipt.json beside it names."""

    component: str
    archive: str
    patches: list[NamedPatch]


class ContextAsk(_Keyed):
    """Make the context of a build. `files` are base64 by their names; `epoch` is the time of all files, unix
    seconds.
    """

    dockerfile: str
    sources: list[ContextSource]
    artifacts: list[DebFile]
    files: dict[str, str]
    epoch: int


class DiscardAsk(TypedDict):
    """Remove a context by its path again."""

    name: str
    discard: str


@final
class ContextRequest(ContextAsk, Placed):
    """As the agent gets it."""


@final
class DiscardRequest(DiscardAsk, Placed):
    """As the agent gets it."""


class ContextResult(TypedDict):
    """`path` is in the store."""

    path: str
    sha256: str
    bytes: int


class Discarded(TypedDict):
    """Nothing is told."""


class BaseAsk(TypedDict):
    """What an image is built from, which is in docker: one of ours by its key, or a pinned one, which is pulled with
    that login where it is lacking.
    """

    reference: str
    key: str
    pinned: bool
    login: str


class Gate(TypedDict):
    """A command that must pass inside an image; `timeout` in seconds."""

    id: str
    command: list[str]
    expect: str
    timeout: float
    env: dict[str, str]


class BuildInputs(_MakeAsk):
    """An image and all that it is built from; `context` is a tar in the store."""

    context: str
    sha256: str
    base: BaseAsk | None
    architecture: str
    network: bool
    args: dict[str, str]
    secrets: dict[str, str]
    epoch: int
    gates: list[Gate]


class BuildAsk(BuildInputs):
    """What docker has with this key already is built again only when `force` is set."""

    force: bool


class BuildRequest(BuildAsk, Placed):
    """As the agent gets it."""


class ReproRequest(BuildInputs, Placed):
    """As the agent gets it."""


class BuildResult(TypedDict):
    """Diff ids, and the gates that it passed."""

    layers: list[str]
    gates: list[GateResult]


class FileDifference(TypedDict):
    """`how` has "added", "removed", "type", "content", "mode" and "mtime"."""

    path: str
    how: list[str]
    folder: bool


class LayerDifference(TypedDict):
    """`number` from 1; `dated` of the `count` are folders that differ in nothing but their time."""

    number: int
    count: int
    dated: int
    files: list[FileDifference]


class ReproResult(TypedDict):
    """How many layers, and those that differ."""

    layers: int
    different: list[LayerDifference]


CONTEXT: Verb[ContextAsk, ContextResult] = Verb("context", ContextResult)
DISCARD: Verb[DiscardAsk, Discarded] = Verb("context", Discarded)
BUILD: Verb[BuildAsk, BuildResult] = Verb("build", BuildResult)
REPRO: Verb[BuildInputs, ReproResult] = Verb("repro", ReproResult)
