"""Record types the agent writes on a node and the rest of sparkbuild reads. All are JSON objects."""

from __future__ import annotations

from typing import Any, TypedDict

from sparkbuild.agent.wire.processlane import ProcessLane
from sparkbuild.agent.wire.unreachable import Unreachable


class LaneRecord(TypedDict, total=False):
    """`<store>/lanes/<recipe>/lane.json`: the last launch of a lane on this node, one rank of it. `runtime` process:
    `pid` with `start_ticks` (field 22 of /proc/<pid>/stat) and `boot_id` name one process for ever; a pid alone does
    not. `runtime` docker: `container` is its full id, pid is 0, and the log is docker's. `launch` is the same text on
    all ranks of one launch. Times are unix seconds by the node's clock; `launched_uptime` is the launch in seconds
    since the node was started, of the boot `boot_id`. `log` is relative to the store. `port` is 0 on ranks that serve
    nobody. `uses` are the absolute folders of the node that it reads. `ready` and `gates` are of rank 0, and stay None
    until each was passed. `oom_kills`: how many processes the kernel had killed for want of memory when it was
    launched. `stopping`: it was told to stop, {"at": time, "by": who}; `stopped_at`: it has. `started` is docker's
    StartedAt of the container as the launch started it: another one is another start.
    """

    format: str
    recipe: str
    runtime: str
    launch: str
    rank: int
    world_size: int
    key: str
    parts: dict[str, Any]
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
    launched_at: float
    oom_kills: int
    launched_uptime: float
    started: str
    ready: dict[str, Any] | None
    gates: list[dict[str, Any]] | None
    served_at: float | None
    stopping: dict[str, Any] | None
    stopped_at: float | None


class Box(TypedDict):
    """A container with our label. `state` is docker's (created, running, exited, ...), `status` docker's words for it
    ("Exited (137) 2 minutes ago"), `launch` which launch made it, `store` for which store (boxes.store_id, "" when it
    does not say), `by` who launched it, `created` unix seconds.
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


class LaneFact(TypedDict, total=False):
    """What is seen of one rank of a lane: its record, whether that very process or container lives, listens and
    answers, and who else holds the port ({"pid", "command", "user", "lane", "container"}; pid 0: hidden from us; lane
    "": none of this node's store; container "": it is in none of ours). `state` is the container's, in docker's words.
    `left` are living containers of the recipe that the record does not name, `stranger` what has the container's name
    and is not ours, `others` the names of other lanes that run on this node, `foreign` living containers of lanes that
    were launched from another store, `elsewhere` living processes of such. `again`: why a living container is not what
    was launched; `frozen`: since docker has paused it, or starts it again and again. `unread`: records of the store
    that cannot be read, in words; `others_unread` those of other recipes that are another user's. `docker_problem`: why
    docker did not answer. `now`: the time by the node's clock, which its record's times are by.
    """

    record: LaneRecord | None
    alive: bool
    state: str
    left: list[Box]
    stranger: str
    others: list[str]
    foreign: list[Box]
    elsewhere: list[ProcessLane]
    unread: list[str]
    others_unread: list[str]
    docker_problem: str
    now: float
    again: str
    frozen: bool
    listening: bool
    answers: bool
    served_ids: list[str]
    problem: str
    port_holder: dict[str, Any] | None
    last_lines: list[str]


class Memory(TypedDict):
    """Bytes, of /proc/meminfo."""

    total: int
    available: int
    swap_total: int


class System(TypedDict):
    """A machine, and who we are on it. `time` is unix seconds when it was answered, `groups` those of the agent's own
    process, `cpus` logical ones.
    """

    host: str
    os: str
    os_version: str
    arch: str
    kernel: str
    boot_id: str
    python: str
    time: float
    uptime: float
    user: str
    uid: int
    groups: list[str]
    cpus: int
    memory: Memory


class Disk(TypedDict):
    """What is at a path: `kind` is dir, file, device, other or missing; of what is missing, the rest is that of the
    nearest folder above. Bytes; `free` is what a user may fill. `problem`: the path cannot be looked at.
    """

    exists: bool
    kind: str
    file_system: str
    mount: str
    total: int
    free: int
    read_only: bool
    problem: str


class Gpu(TypedDict):
    """A GPU by its driver."""

    index: int
    name: str
    uuid: str
    driver: str


class Interface(TypedDict):
    """A network interface; `addresses` are its IPv4 addresses as "10.0.0.1/24", `speed_mbit` is 0 when not known."""

    name: str
    up: bool
    speed_mbit: int
    mtu: int
    mac: str
    addresses: list[str]


class Gid(TypedDict):
    """An address of an HCA's port; `type` is "RoCE v2", "IB/RoCE v1", ...; `ipv4` is the IPv4 address in it, or ""."""

    index: int
    gid: str
    type: str
    ipv4: str


class Hca(TypedDict):
    """One port of an RDMA adapter, with the network interface it shares the wire with."""

    name: str
    port: int
    active: bool
    interface: str
    gids: list[Gid]


class DockerImage(TypedDict):
    """An image in docker's store; `layers` are diff ids, `size` is in bytes."""

    id: str
    tags: list[str]
    labels: dict[str, str]
    layers: list[str]
    arch: str
    os: str
    entrypoint: list[str]
    cmd: list[str]
    user: str
    size: int


class Container(TypedDict):
    """A container that runs, or has a label of ours. `state` and `status` are docker's ("exited", "Exited (137) 2
    minutes ago"); `pid` is 0, `started` (docker's StartedAt) "" and `exit_code` None where there is none; `gpu` is
    known of running ones; `ours`: it is a lane's.
    """

    id: str
    name: str
    image: str
    image_id: str
    state: str
    status: str
    labels: dict[str, str]
    created: float
    pid: int
    started: str
    exit_code: int | None
    gpu: bool
    ours: bool


class DockerFact(TypedDict):
    """Docker's engine. `problem` says why it did not answer, or not all of it; `store` is its storage driver (overlay2;
    overlayfs is containerd's), `images` are those asked for, None for what is not there. `gives_gpus`: it can hand
    NVIDIA GPUs to containers; `remaps_users`: root of a container is another user here (userns-remap).
    """

    present: bool
    problem: str
    version: str
    api: str
    store: str
    root: str
    arch: str
    images: dict[str, DockerImage | None]
    containers: list[Container]
    gives_gpus: bool
    remaps_users: bool


class LaneRow(TypedDict):
    """A lane's last launch on a node, in short; `alive` is None when it is in docker, and docker does not answer.
    `again` as in LaneFact. `nodes` are those of the launch, in rank order.
    """

    recipe: str
    runtime: str
    alive: bool | None
    ready: bool
    launched_at: float
    served_at: float | None
    stopped_at: float | None
    protect: bool
    port: int
    model_id: str
    rank: int
    pid: int
    container: str
    launch: str
    nodes: list[str]
    again: str


class NodeFact(System):
    """A node as a whole. `driver` is the GPUs', "" without one. `ports`: who listens on each port asked for, {"pid",
    "command", "user"} or None. `problems`: which of the looks failed, and why.
    """

    disks: dict[str, Disk]
    gpus: list[Gpu]
    driver: str
    interfaces: list[Interface]
    hcas: list[Hca]
    docker: DockerFact
    lanes: list[LaneRow]
    elsewhere: list[ProcessLane]
    unread: list[str]
    strangers: dict[str, str]
    ports: dict[str, dict[str, Any] | None]
    problems: dict[str, str]


class PreflightFact(TypedDict):
    """What would keep a launch from working on a node. `missing` paths, `devices_missing`, and devices that are none;
    `unknown` paths could not be looked at: {path: problem}. `ports` that are held, and by whom. `image`: whether it is
    there (None: it is not, or docker does not answer; then `docker_problem` says why). `foreign`: containers that are
    not ours and have a GPU. `arch` is the machine's (aarch64, x86_64). `memory_available` in bytes; `memory_own`: what
    the lane that would be replaced holds of the rest, as measured. `ends_with_login`: why a process that is started
    here would not outlive the login, "" when it would.
    """

    missing: list[str]
    devices_missing: list[str]
    not_devices: list[str]
    unknown: dict[str, str]
    ports: dict[str, dict[str, Any]]
    unreachable: list[Unreachable]
    image: DockerImage | None
    foreign: list[Container]
    docker_problem: str
    arch: str
    memory_available: int
    memory_own: int
    ends_with_login: str
