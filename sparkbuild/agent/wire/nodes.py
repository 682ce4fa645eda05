"""What a node says of itself: the machine, its network, its disks, its docker, and the lanes on it."""

from typing import TypedDict

from sparkbuild.agent.wire.clock import Time
from sparkbuild.agent.wire.engine import DockerFact
from sparkbuild.agent.wire.records import Holder, LaneRow, ProcessLane, UnreadRecord
from sparkbuild.agent.wire.verbs import Absent, Look, Verb


class _Query(TypedDict):
    scheme: str


class Query(_Query, total=False):
    """A question, as far as `facts` itself reads it: what is looked at reads the rest. `hurry`: see patience.hurry."""

    hurry: bool
    recipe: str
    runtime: str
    dst: str


class FactsAsk(TypedDict):
    """Several questions in one round trip."""

    queries: list[Query]


class FactsResult(TypedDict):
    """The answers, in the order of the questions. Each is held against its own shape (nodes/rpc/shapes.py)."""

    facts: list[object]


FACTS: Verb[FactsAsk, FactsResult] = Verb("facts", FactsResult)


class Memory(TypedDict):
    """Bytes, of /proc/meminfo."""

    total: int
    available: int


class System(TypedDict):
    """A machine, and who we are on it. `time` is that of the answer, `groups` those of the agent's own process, `cpus`
    logical ones.
    """

    host: str
    os: str
    os_version: str
    arch: str
    kernel: str
    boot_id: str
    python: str
    time: Time
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


class NetworkAsk(TypedDict):
    """There is nothing to choose."""


class NetworkFact(TypedDict):
    """How others may reach a node."""

    interfaces: list[Interface]
    hcas: list[Hca]


NETWORK: Look[NetworkAsk, NetworkFact] = Look("network", NetworkFact)


class ListenerAsk(TypedDict):
    """Where is this port listened on?"""

    port: int


class ListenerFact(TypedDict):
    """The addresses by which the node itself reaches what listens."""

    addresses: list[str]


LISTENER: Look[ListenerAsk, ListenerFact] = Look("listener", ListenerFact)


class RoomAsk(TypedDict):
    """Folders, those that are relative in the store."""

    paths: list[str]


class Room(TypedDict):
    """What is free where a folder is, or would be, in bytes. `exists`: it is a folder; `device`: which file system;
    `held`: what of the disk is in the folder; `problem`: why it cannot be looked at, and then nothing is known.
    """

    exists: bool | None
    free: int | None
    total: int | None
    device: str
    held: int
    problem: str


class RoomFact(TypedDict):
    """By the paths as they were asked for."""

    rooms: dict[str, Room]


ROOM: Look[RoomAsk, RoomFact] = Look("room", RoomFact)


class PreflightAsk(TypedDict, total=False):
    """What a launch would need: `paths` that are there, `devices` that are some, `peers` (IPv4 addresses) that are
    reached. `replaces`: the recipe whose lane would be stopped for it; `runtime` process: what is started here must
    outlive the login.
    """

    paths: list[str]
    devices: list[str]
    peers: list[str]
    replaces: str
    runtime: str


class Unreachable(TypedDict):
    """A peer that cannot be reached from a node, and how that shows."""

    peer: str
    problem: str


class PreflightFact(TypedDict):
    """What would keep a launch from working on a node. `missing` paths, `devices_missing`, and devices that are none;
    `unknown` paths could not be looked at: {path: problem}. `memory_available` in bytes; `memory_own`: what the lane
    that would be replaced holds of the rest, as measured. `ends_with_login`: why a process that is started here would
    not outlive the login, "" when it would.
    """

    missing: list[str]
    devices_missing: list[str]
    not_devices: list[str]
    unknown: dict[str, str]
    unreachable: list[Unreachable]
    memory_available: int
    memory_own: int
    ends_with_login: str


PREFLIGHT: Look[PreflightAsk, PreflightFact | Absent] = Look("preflight", PreflightFact)


class NodeAsk(TypedDict, total=False):
    """What is looked at beside the machine: absolute `paths`, `ports`, and `images`: references, ids, or names with
    their digest.
    """

    paths: list[str]
    ports: list[int]
    images: list[str]


class NodeFact(System):
    """A node as a whole. `driver` is the GPUs', "" without one. `ports`: who listens on each port that was asked for.
    `unread` and `elsewhere` as in LaneFact; `strangers`: ports that other people listen on, and who that is. A docker
    that does not answer is a problem in `docker`; `problems`: which of the other looks failed, and why.
    """

    disks: dict[str, Disk]
    gpus: list[Gpu]
    driver: str
    interfaces: list[Interface]
    hcas: list[Hca]
    docker: DockerFact
    lanes: list[LaneRow]
    elsewhere: list[ProcessLane]
    unread: list[UnreadRecord]
    strangers: dict[str, str]
    ports: dict[str, Holder | None]
    problems: dict[str, str]


NODE: Look[NodeAsk, NodeFact | Absent] = Look("node", NodeFact)
