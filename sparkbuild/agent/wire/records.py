"""What a node keeps and says of lanes, one at a time: records, containers, processes. All are JSON objects."""

from typing import TypedDict

from sparkbuild.agent.wire.clock import Time


class _Ready(TypedDict):
    seconds: float
    ttft: float


class Ready(_Ready, total=False):
    """How a lane became ready: `seconds` after its launch, the first token of a first answer after `ttft` seconds, and
    that answer.
    """

    text: str


class Gate(TypedDict):
    """What is relied on of a gate's result; the rest is that of gates.chat.GateResult."""

    id: str
    ok: bool


class Stopping(TypedDict):
    """A lane was told to stop."""

    at: Time
    by: str


class LaneParts(TypedDict, total=False):
    """The parts of a lane's key. They are compared as a whole; of `nodes`, those of the launch in rank order, more is
    known.
    """

    nodes: list[str]


class _LaneRecord(TypedDict):
    parts: LaneParts


class LaneRecord(_LaneRecord, total=False):
    """`<store>/lanes/<recipe>/lane.json`: the last launch of a lane on this node, one rank of it. `runtime` process:
    `pid` with `start_ticks` (field 22 of /proc/<pid>/stat) and `boot_id` name one process for ever; a pid alone does
    not. `runtime` docker: `container` is its full id, pid is 0, and the log is docker's. `launch` is the same text on
    all ranks of one launch. Times are by the node's clock; `launched_uptime` is the launch in seconds since the node
    was started, of the boot `boot_id`. `log` is relative to the store. `port` is 0 on ranks that serve nobody. `uses`
    are the absolute folders of the node that it reads. `ready` and `gates` are of rank 0, and stay None until each was
    passed. `oom_kills`: how many processes the kernel had killed for want of memory when it was launched. `stopping`:
    it was told to stop; `stopped_at`: it has. `started` is docker's StartedAt of the container as the launch started
    it: another one is another start.
    """

    format: str
    recipe: str
    runtime: str
    launch: str
    rank: int
    world_size: int
    key: str
    container: str
    pid: int
    start_ticks: int
    boot_id: str
    argv: list[str]
    uses: list[str]
    host: str
    port: int
    model_id: str
    protect: bool
    lock: str
    log: str
    launched_at: Time
    oom_kills: int
    launched_uptime: float
    started: str
    ready: Ready | None
    gates: list[Gate] | None
    served_at: Time | None
    stopping: Stopping | None
    stopped_at: Time | None


class UnreadRecord(TypedDict):
    """A record that is there and cannot be read: of which recipe, and all that is known of it, in one line."""

    recipe: str
    text: str


class LaneRow(TypedDict):
    """A lane's last launch on a node, in short; `alive` is None when it is in docker, and docker does not answer.
    `again` as in LaneFact. `nodes` are those of the launch, in rank order.
    """

    recipe: str
    runtime: str
    alive: bool | None
    ready: bool
    launched_at: Time
    served_at: Time | None
    stopped_at: Time | None
    protect: bool
    port: int
    model_id: str
    rank: int
    pid: int
    container: str
    launch: str
    nodes: list[str]
    again: str


class Box(TypedDict):
    """A container with our label. `state` is docker's (created, running, exited, ...), `status` docker's words for it
    ("Exited (137) 2 minutes ago"), `launch` which launch made it, `store` for which store (lanelabels.store_id, "" when
    it does not say), `by` who launched it, `created` unix seconds.
    """

    id: str
    name: str
    recipe: str
    key: str
    launch: str
    store: str
    by: str
    state: str
    status: str
    created: int


class ProcessLane(TypedDict):
    """A lane that runs as processes and that no record of this store names. `pid` is its first process, `user` whose it
    is, `store` where it was launched from ("" when that is not known; `ours`: this very store, without a record),
    `ports` those it listens on, `since` when it was started. `gpus`: the node has some, which no two engines share
    well.
    """

    recipe: str
    pid: int
    user: str
    store: str
    ours: bool
    ports: list[int]
    since: Time
    gpus: bool


class _Holder(TypedDict):
    pid: int
    command: str
    user: str


class Holder(_Holder, total=False):
    """Who listens on a port. pid 0: the process is hidden from us, and `command` says whose it is. `lane` and
    `container`: which of this node's store it is in, "" for none; they are absent where nobody asked for that.
    """

    lane: str
    container: str
