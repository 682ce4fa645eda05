"""Staged folders on the wire: looking, staging, verifying, scrubbing."""

from typing import Literal, TypedDict, final

from sparkbuild.agent.wire.clock import Time
from sparkbuild.agent.wire.receipts import Parts
from sparkbuild.agent.wire.staging.peers import Peers
from sparkbuild.agent.wire.staging.sources import About, What
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb

Refusal = dict[str, str]  # the fields of an error (protocol.AgentError), and its `part`: "dst" or "source"
Evicted = TypedDict("Evicted", {"at": Time, "for": str})  # "for" is a word of Python


class Owner(TypedDict):
    """Whose data it is, for the node's index; `workspace` is "host:folder"."""

    recipe: str
    block: str
    workspace: str


class _Claim(TypedDict):
    dst: str
    key: str


class Claim(_Claim, total=False):
    """A folder (relative: inside the store) that is to hold what a key names."""

    owner: Owner


class ClaimRequest(Claim, Placed):
    """To the agent."""


class NamedProblem(TypedDict):
    """What is wrong with a file, in words."""

    file: str
    text: str


class Problem(NamedProblem):
    """`bytes` are to be written again."""

    bytes: int


class Checked(TypedDict):
    """How a look was come by: bytes and chunks read, files that were read whole."""

    bytes: int
    chunks: int
    whole: list[str]


class Found(TypedDict):
    """Files without a record that have their size: staging compares them, and keeps what proves right."""

    files: int
    bytes: int


class Forecast(TypedDict, total=False):
    """What staging would do: `to_write` of `wanted` bytes; `beside`: bytes that the folder has now and that stay on the
    disk by other names, though it gets something else. None where the source cannot say.
    """

    to_write: int | None
    wanted: int | None
    found: Found | None
    beside: int | None
    about: About | None


@final
class Expected(Forecast, total=False):
    """A forecast, and why it cannot be staged, {} when it can."""

    refused: Refusal


class Traces(TypedDict, total=False):
    """What is known of a folder that is not there: who works in it now ("" for nobody), that a staging (or a removal)
    did not end, that it was evicted since it was made. `before`: where that recipe's block was last; `here`: it was
    this folder.
    """

    busy: str
    begun: bool
    evicted: Evicted
    before: str
    here: bool


class StagedAsk(Claim, total=False):
    """An empty key is any. `full`: read every chunk of every file; `linked`: files may have other names; `of`: the
    recipe and block. `what` tells what staging would write, `source`: even where nothing is wrong. `hurry`: see
    disk.patience.
    """

    full: bool
    linked: bool
    of: str
    what: What
    source: bool
    hurry: bool


class StagedQuery(StagedAsk, Placed):
    """To the agent."""


class _StagedFact(TypedDict):
    present: Literal[True]
    key: str
    bytes: int
    problems: list[Problem]
    checked: Checked


@final
class StagedFact(_StagedFact, Forecast, total=False):
    """A folder that has a ledger, `bytes` of data by that. `closed`: a path in it that other users cannot read, "" when
    there is none. `parts` are left out where nothing moved since all of it was proven. `refused`: why it cannot be
    staged, {} when it can.
    """

    refused: Refusal
    parts: Parts
    closed: str


@final
class NotStaged(Absent, Traces, Forecast):
    """A folder without a ledger."""


STAGED: Look[StagedAsk, StagedFact | NotStaged] = Look("staged", StagedFact, NotStaged)
VERIFY: Verb[StagedAsk, StagedFact | NotStaged] = Verb("verify", StagedFact, NotStaged)


class _StageAsk(Claim):
    parts: Parts
    what: What
    verify: str
    full: bool
    min_free: int
    bwlimit: int
    linked: bool
    task: str


class StageAsk(_StageAsk, total=False):
    """`verify`: how files that other tools made are compared, "quick" or "full"; `full`: believe no stamp. `min_free`
    in bytes, `bwlimit` in bytes per second (0: none), `streams`: files at once. `linked`: files may have other names.
    `task` is what doit calls it.
    """

    streams: int
    peers: Peers


class StageRequest(StageAsk, Placed):
    """To the agent."""


class StageResult(TypedDict):
    """`bytes` written of `total` in all files; `links` made; `read` from the sources, `received` from peers."""

    bytes: int
    total: int
    files: int
    copied: int
    adopted: int
    repaired_chunks: int
    removed: int
    links: int
    read: int
    received: int
    about: About


STAGE: Verb[StageAsk, StageResult] = Verb("stage", StageResult)


class ScrubFolder(TypedDict):
    """A folder to be read, and the key that its ledger is to have ("": any)."""

    dst: str
    key: str


class ScrubAsk(TypedDict):
    """`limit`: bytes to read in all."""

    folders: list[ScrubFolder]
    limit: int


class ScrubRequest(ScrubAsk, Placed):
    """To the agent."""


@final
class Scrubbed(TypedDict):
    """`done` bytes of this round were compared; `over`: it ended. `since`: when it began, `ended`: when the last one
    did, `round`: how many did. "other": its ledger has another key.
    """

    dst: str
    state: Literal["ok", "damaged", "absent", "other", "busy"]
    problems: list[NamedProblem]
    read: int
    seconds: float
    done: int
    over: bool
    total: int
    since: Time
    ended: Time
    round: int


@final
class ScrubResult(TypedDict):
    """Bytes read in all, and the folders in the order asked for."""

    read: int
    folders: list[Scrubbed]


SCRUB: Verb[ScrubAsk, ScrubResult] = Verb("scrub", ScrubResult)
