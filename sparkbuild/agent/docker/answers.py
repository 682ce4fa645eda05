"""What is relied on of docker's answers. Types only: shapes.py holds what comes against them, and leaves out of an
answer each field that has another type; those that are `object` here it lets pass.

Names are those of the Docker Engine API, https://docs.docker.com/reference/api/engine/.
"""

from __future__ import annotations

from typing import TypedDict


class Mount(TypedDict, total=False):
    """Of a row of a list of containers."""

    Source: object


class _Row(TypedDict):
    Id: str


class ContainerRow(_Row, total=False):
    """ContainerList. `Created` is unix seconds."""

    Names: list[str]
    Image: object
    ImageID: object
    State: object
    Status: object
    Labels: dict[str, str]
    Created: int | str
    Mounts: list[Mount]


class State(TypedDict, total=False):
    """Of one container: its process, or how that ended."""

    Status: object
    StartedAt: object
    Pid: int
    ExitCode: object
    OOMKilled: object
    Error: object


class Config(TypedDict, total=False):
    """What a container was made with, or an image says of those that are made of it."""

    Labels: dict[str, str]
    Env: list[str]
    Entrypoint: list[str]
    Cmd: list[str]
    User: object
    Image: object
    Tty: object


class DeviceRequest(TypedDict, total=False):
    """`--gpus`, or a CDI device."""

    Driver: object
    DeviceIDs: list[str]
    Capabilities: list[list[object]]


class Device(TypedDict, total=False):
    """A plain device."""

    PathOnHost: object


class HostConfig(TypedDict, total=False):
    """What a container has of its machine."""

    DeviceRequests: list[DeviceRequest]
    Devices: list[Device]
    Runtime: object


class _Inspected(TypedDict):
    Id: str
    Name: str
    Config: Config
    State: State


class Inspected(_Inspected, total=False):
    """ContainerInspect."""

    Image: object
    HostConfig: HostConfig


class RootFS(TypedDict, total=False):
    """Diff ids, from the bottom."""

    Layers: list[str]


class Image(TypedDict, total=False):
    """ImageInspect; or a row of ImageList, which alone has `Labels` here. `Size` in bytes."""

    Id: str
    RepoTags: list[str]
    RepoDigests: list[str]
    Config: Config
    RootFS: RootFS
    Architecture: str
    Os: object
    Size: int
    Metadata: dict[str, object]
    Labels: dict[str, str]


class Info(TypedDict, total=False):
    """SystemInfo."""

    Driver: object
    DriverStatus: list[list[object]]
    DockerRootDir: object
    Architecture: str
    Runtimes: dict[str, object]
    CDISpecDirs: list[str]
    SecurityOptions: list[str]


class Version(TypedDict, total=False):
    """SystemVersion."""

    Version: object
    ApiVersion: object
    Arch: object


class Progress(TypedDict, total=False):
    """Bytes of one layer."""

    current: int
    total: int


class Event(TypedDict, total=False):
    """A line of what docker says while it pulls or loads."""

    status: str
    id: str
    progressDetail: Progress
    stream: str
    error: object


class CacheRow(TypedDict, total=False):
    """A record of BuildKit's cache. Times are texts."""

    Size: int
    InUse: object
    Shared: object
    LastUsedAt: object
    CreatedAt: object


class CacheUse(TypedDict, total=False):
    """SystemDataUsage, of the cache alone."""

    BuildCache: list[CacheRow]


class Pruned(TypedDict, total=False):
    """BuildPrune. Bytes."""

    SpaceReclaimed: int
