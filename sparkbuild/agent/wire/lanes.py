"""What is asked of a node about a lane: to launch, to watch, to stop, to look."""

from typing import TypedDict

from sparkbuild.agent.wire.clock import Time
from sparkbuild.agent.wire.records import (
    Box,
    Gate,
    Holder,
    LaneParts,
    LaneRecord,
    ProcessLane,
    Ready,
    Stopping,
    UnreadRecord,
)
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb


class _LaneAsk(TypedDict):
    recipe: str
    port: int


class LaneAsk(_LaneAsk, total=False):
    """`port` is the one that the recipe wants, 0 for that of the record; docker is asked when `runtime` is docker."""

    runtime: str


class LaneMore(TypedDict, total=False):
    """What is seen of one rank of a lane beside its record: whether that very process or container listens and answers,
    and who else holds the port. `state` is the container's, in docker's words. `left` are living containers of the
    recipe that the record does not name, `stranger` what has the container's name and is not ours, `others` the names
    of other lanes that run on this node, `foreign` living containers of lanes that were launched from another store,
    `elsewhere` living processes of such. `again`: why a living container is not what was launched; `frozen`: since
    docker has paused it, or starts it again and again. `unread`: records of the store that cannot be read.
    `docker_problem`: why docker did not answer. `now`: the time by the node's clock, which its record's times are by.
    """

    listening: bool
    answers: bool
    port_holder: Holder | None
    now: Time
    state: str
    left: list[Box]
    stranger: str
    others: list[str]
    foreign: list[Box]
    elsewhere: list[ProcessLane]
    unread: list[UnreadRecord]
    docker_problem: str
    again: str
    frozen: bool
    served_ids: list[str]
    problem: str
    last_lines: list[str]


class LaneFact(LaneMore):
    """Its record, and whether the very process or container of that lives; and what else is seen."""

    record: LaneRecord | None
    alive: bool


LANE: Look[LaneAsk, LaneFact | Absent] = Look("lane", LaneFact)


class HoldAsk(TypedDict):
    """`who` launches which recipe."""

    recipe: str
    who: str


class HoldRequest(HoldAsk, Placed, total=False):
    """With where. `name` of the socket: of tests."""

    name: str


class Ended(TypedDict):
    """A verb that ends with its caller has no result."""


HOLD: Verb[HoldAsk, Ended] = Verb("hold", Ended)


class PrepareAsk(TypedDict):
    """What a launch needs beside its image: `files` of the recipe by name, in base64, into the folder of that name,
    which is made from their content; `secrets` by name.
    """

    recipe: str
    launch: str
    folder: str
    files: dict[str, str]
    secrets: dict[str, str]


class PrepareRequest(PrepareAsk, Placed):
    """With where."""


class PrepareResult(TypedDict):
    """Folders of the node, "" where nothing was put."""

    files: str
    secrets: str


PREPARE: Verb[PrepareAsk, PrepareResult] = Verb("prepare", PrepareResult)


class Launching(TypedDict):
    """The fields of a LaneRecord that a launch decides. Port 0: this rank serves nobody."""

    recipe: str
    launch: str
    rank: int
    world_size: int
    key: str
    parts: LaneParts
    argv: list[str]
    uses: list[str]
    host: str
    port: int
    model_id: str
    protect: bool
    lock: str


class RecordAsk(Launching):
    """Of a container that was made and is not started."""

    container: str


class RecordRequest(RecordAsk, Placed):
    """With where."""


class LaunchAsk(Launching):
    """Of a process. `env` may hold secrets: it goes to the process and nowhere else."""

    env: dict[str, str]


class LaunchRequest(LaunchAsk, Placed):
    """With where."""


class Recorded(TypedDict):
    """A lane, as it is recorded now."""

    record: LaneRecord


RECORD: Verb[RecordAsk, Recorded] = Verb("record", Recorded)
LAUNCH: Verb[LaunchAsk, Recorded] = Verb("launch", Recorded)


class Noted(TypedDict, total=False):
    """What is learnt of a lane after its launch. For a time, any value but None and 0 means now: all times of a record
    are by one clock, its node's.
    """

    key: str
    parts: LaneParts
    ready: Ready | None
    gates: list[Gate] | None
    served_at: Time | None
    protect: bool
    stopped_at: Time | None
    started: str


class NoteAsk(TypedDict):
    """Note that of a launch, unless another one is recorded by now."""

    recipe: str
    launch: str
    set: Noted


class NoteRequest(NoteAsk, Placed):
    """With where."""


NOTE: Verb[NoteAsk, Recorded] = Verb("note", Recorded)


class _WatchAsk(TypedDict):
    recipe: str
    until: str


class WatchAsk(_WatchAsk, total=False):
    """`until` it is "listening" or "dead", or another launch than `launch` is recorded."""

    launch: str


class WatchRequest(WatchAsk, Placed):
    """With where."""


class WatchResult(TypedDict, total=False):
    """How it ended, or that it listens; `launch` is the one that is recorded then, `stopping` what its record says of
    being stopped.
    """

    alive: bool
    listening: bool
    last_lines: list[str]
    state: str
    launch: str
    stopping: Stopping | None


WATCH: Verb[WatchAsk, WatchResult] = Verb("watch", WatchResult)


class _StopAsk(TypedDict):
    recipe: str
    grace: float


class StopAsk(_StopAsk, total=False):
    """`grace`: seconds between SIGTERM and SIGKILL. With `launch`, only what that launch started is stopped; `by` is
    noted in the record.
    """

    launch: str
    by: str


class StopRequest(StopAsk, Placed):
    """With where."""


class _Stopped(TypedDict):
    stopped: bool
    pid: int
    killed: bool
    launch: str


class StopResult(_Stopped, total=False):
    """`stopped`: a process was, and `killed` when it had to be by SIGKILL. `launch` is the recorded one, `nodes` are
    those it was launched on, [] when it was stopped already. `containers` are those of the recipe that hold the node or
    its name, for the caller to stop; `foreign` those that another store's operator launched, to be left alone,
    `elsewhere` processes of such; `docker_problem` when the record names a container and docker does not answer.
    """

    nodes: list[str]
    containers: list[Box]
    foreign: list[Box]
    elsewhere: list[ProcessLane]
    docker_problem: str


STOP: Verb[StopAsk, StopResult] = Verb("stop", StopResult)


class TailAsk(TypedDict):
    """The last `lines` of the log, and with `follow` what is added to it until the lane ends."""

    recipe: str
    lines: int
    follow: bool


class TailRequest(TailAsk, Placed):
    """With where."""


class TailResult(TypedDict):
    """What log it was, and whether its lane lives."""

    log: str
    alive: bool


TAIL: Verb[TailAsk, TailResult] = Verb("tail", TailResult)


class TokenizerAsk(TypedDict):
    """A tokenizer.json of the node, or its folder."""

    path: str


class TokenizerRequest(TokenizerAsk, Placed):
    """With where."""


class TokenizerResult(TypedDict):
    """The files that were sent."""

    names: list[str]


TOKENIZER: Verb[TokenizerAsk, TokenizerResult] = Verb("tokenizer", TokenizerResult)
