"""What a node's docker has, and what its agent does with it: images, containers, pulls, the way to its socket."""

from typing import TypedDict

from sparkbuild.agent.wire.store import Place
from sparkbuild.agent.wire.verbs import Placed, Verb


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


class Layer(TypedDict):
    """A layer of an image, by the sha256 of its tar."""

    sha256: str
    size: int


class _PullAsk(TypedDict):
    folder: str
    reference: str
    key: str
    architecture: str
    config: str
    layers: list[Layer]
    arriving: list[str]
    token: str
    sources: list[Place]
    containerd: bool


class PullAsk(_PullAsk, total=False):
    """Have docker pull an image: its `config` as text, `layers` from the bottom, of which those that are `arriving` are
    on their way into `folder` of the store; others that docker wants are had from `sources`, by `token`. `key` is what
    its label must say, "" for an image that is not ours; `containerd`: whether that is docker's store; `big`: see BIG
    of docker.pull.
    """

    big: int


class PullRequest(PullAsk, Placed):
    """With where."""


class _Pulled(TypedDict):
    layers: list[str]
    fetched: int


class PullResult(_Pulled, total=False):
    """The layers' ids, and how many bytes of layers came beyond those that arrive. `found`: another pull had brought
    the image, and nothing was done.
    """

    found: bool


PULL: Verb[PullAsk, PullResult] = Verb("pull", PullResult)


class AdoptAsk(TypedDict):
    """Take `repository@digest` under the name `reference`; `pull`: it may be pulled, with `login` for its registry ("":
    none).
    """

    repository: str
    digest: str
    reference: str
    pull: bool
    login: str


class AdoptRequest(AdoptAsk, Placed):
    """With where."""


class AdoptResult(TypedDict):
    """The image: its layers' ids, its architecture, its size; whether it was pulled just now."""

    layers: list[str]
    architecture: str
    bytes: int
    pulled: bool


ADOPT: Verb[AdoptAsk, AdoptResult] = Verb("adopt", AdoptResult)
