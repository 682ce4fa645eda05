"""The shapes of config.toml, image.toml and recipe.toml. A key that is not here is an error.

A new key goes into the template of its file too (template/), with a comment: a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparkbuild.workspace.shapes.fieldtypes import (
    Argument,
    Component,
    EnvName,
    ImageName,
    Name,
    Port,
    Positive,
    Python,
    Seconds,
    Table,
    Text,
    Variable,
)
from sparkbuild.workspace.shapes.stagingschema import Staging


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine. `store` is where sparkbuild keeps images, artifacts, staged data and lanes on it; a relative path is
    inside the workspace, and only for this machine.

    `address` is what clients reach the node by; for this machine 127.0.0.1 unless set.

    For `ssh`: `address` is a host name or address, or a Host of ~/.ssh/config (default: the node's own name); `user`,
    `port`, `key` and `jump` (ProxyJump) win over what that file says. `host_key` pins the node's public key
    ("ssh-ed25519 AAAA...") or its fingerprint ("SHA256:..."). `python` runs the agent; `docker` is the engine's socket.
    `offline`: the node has no internet, what it needs is fetched by this machine and sent over the connection.
    """

    connection: Literal["local", "ssh"] = "local"
    store: str = ".sparkbuild/node"
    address: str = ""
    user: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    key: str = ""
    jump: str = ""
    host_key: str = ""
    python: str = "python3"
    docker: str = "/var/run/docker.sock"
    offline: bool = False


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An ordered list of nodes; the position is the rank.

    `fabric` is the network ("10.0.1.0/24") the ranks talk over; empty: the one network that all nodes share.
    """

    nodes: Annotated[tuple[Name, ...], Meta(min_length=1)]
    fabric: str = ""


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[images]: docker images on nodes. `keep`: how many of a name `doit prune` leaves on a node. `pull`: an image by
    digest that nodes lack is pulled from its registry by one of them and goes on from there ("once"), or by "each".
    """

    keep: Positive = 2
    pull: Literal["once", "each"] = "once"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """config.toml. `pools` bounds how many steps of one kind run at once."""

    nodes: dict[Name, Node] = {}
    clusters: dict[Name, Cluster] = {}
    pools: dict[Name, Positive] = {}
    images: Images = Images()


class VenvImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="venv", tag_field="kind"):
    """image.toml of kind `venv`: a Python environment from locked wheels.

    `lock` names `locks/<lock>.source.lock`, which pins `requirements` by sha256. `files` are copied into the image;
    `../<image>/<file>` is one of another image's folder. `imports` must import inside it before it counts as built.
    `python` is the least version it works with.
    """

    lock: Name
    requirements: str = "requirements.lock"
    description: str = ""
    files: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    python: Python = "3.10"


class DockerImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="docker", tag_field="kind"):
    """image.toml of kind `docker`: an image put together from locked files alone, without running anything.

    `debs` are artifacts of the lock, Debian packages that are unpacked into the first layer. `requirements` are wheels
    for `python` on `platform`, pinned by the lock; none when it is empty. `files` lie in {{ image.files }}. `env`,
    `entrypoint` and `command` are what a container of it has when nobody says otherwise.
    """

    lock: Name
    description: str = ""
    debs: tuple[Component, ...] = ()
    requirements: str = ""
    python: Python = "3.11"
    files: tuple[str, ...] = ()
    env: dict[EnvName, Argument] = {}
    entrypoint: tuple[str, ...] = ()
    command: tuple[Argument, ...] = ()
    platform: Literal["linux/amd64", "linux/arm64"] = "linux/amd64"


class ImageGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[gates]] of an image: `command` must end with code 0 inside it, without network and GPU, and `expect` must stand
    in what it prints. `timeout` in seconds.
    """

    id: Name
    command: Annotated[tuple[Argument, ...], Meta(min_length=1)]
    expect: str = ""
    timeout: Seconds = 120.0
    env: dict[EnvName, Argument] = {}


class DockerfileImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dockerfile", tag_field="kind"):
    """image.toml of kind `dockerfile`: an image that BuildKit builds on `build_node`, from locked inputs.

    `base` is `image:<name>` of this workspace, `lock:<key>` whose value is name@sha256:..., or `scratch`. `dockerfile`
    is a strict jinja2 template. `sources` and `artifacts` are components of the lock; `patches` are files of the
    image's folder by source, pinned by the lock. `secrets` are BuildKit secret mounts. `network`: whether RUN has one.
    """

    lock: Name
    base: Annotated[
        str,
        Meta(
            pattern=r"^(image:[A-Za-z0-9][A-Za-z0-9_.-]*|lock:[^\s:]+|scratch)\Z",
            description='an image of the workspace ("image:r35"), a base of the lock ("lock:base"), or "scratch"',
        ),
    ]
    description: str = ""
    dockerfile: str = "Dockerfile.j2"
    sources: tuple[Component, ...] = ()
    artifacts: tuple[Component, ...] = ()
    patches: dict[Component, tuple[str, ...]] = {}
    files: tuple[str, ...] = ()
    args: dict[Variable, str | int | bool] = {}
    secrets: tuple[Variable, ...] = ()
    network: bool = False
    platform: Literal["linux/amd64", "linux/arm64"] = "linux/amd64"
    build_node: Name = "local"
    gates: tuple[ImageGate, ...] = ()


ImageFile = VenvImage | DockerImage | DockerfileImage


class Mount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[serve.mounts]]: a folder or file of the node inside the container. `source` and `target` are templates of
    absolute paths; the source must exist.
    """

    source: Text
    target: Text
    read_only: bool = True


class Docker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[serve.docker]: the container of one rank. It has the host's network and is never restarted by docker.

    `devices` are "/dev/x" or "/dev/x:/dev/y"; `gpus` hands over all NVIDIA GPUs. `shm_size` and `memory` in bytes,
    0: docker's default, no limit; the memory limit counts swap too. `ulimits` by name, -1: unlimited. `entrypoint`
    replaces the image's; [] takes it away. `keep`: how many dead containers are kept for their logs.
    """

    devices: tuple[str, ...] = ()
    gpus: bool = False
    capabilities: tuple[str, ...] = ()
    ulimits: dict[str, int] = {}
    shm_size: Annotated[int, Meta(ge=0)] = 0
    memory: Annotated[int, Meta(ge=0)] = 0
    cpus: Annotated[float, Meta(ge=0)] = 0.0
    init: bool = True
    entrypoint: tuple[str, ...] | None = None
    keep: Annotated[int, Meta(ge=0)] = 2


class Serve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[serve]: how the engine is started on each rank. `command`, `model`, `args`, `head_args`, `worker_args` and the
    values of `env` are strict jinja2 templates; the argv is command + model (none when empty) + args + those of the
    rank.

    `secrets` names variables that are handed on from the operator's environment, or from the git-ignored file
    `secrets.env` in the workspace; their values appear nowhere else. A process gets them as variables, a container as
    files in /run/secrets. `network`: "auto" adds the variables of NCCL, GLOO and UCX that the facts of the nodes
    give. `min_memory`: bytes that must be available on each node before a launch. `ready_timeout` and `stop_grace` in
    seconds; `wait = false`: a launch is not waited for.
    """

    command: Annotated[tuple[Argument, ...], Meta(min_length=1)]
    port: Port
    runtime: Literal["process", "docker"] = "process"
    model: str = ""
    args: tuple[Argument, ...] = ()
    head_args: tuple[Argument, ...] = ()
    worker_args: tuple[Argument, ...] = ()
    env: dict[EnvName, Argument] = {}
    secrets: tuple[Variable, ...] = ()
    network: Literal["auto", "none"] = "auto"
    min_memory: Annotated[int, Meta(ge=0)] = 0
    wait: bool = True
    ready_timeout: Seconds = 600.0
    stop_grace: Seconds = 15.0
    mounts: tuple[Mount, ...] = ()
    docker: Docker = Docker()


class SmokeGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="smoke", tag_field="kind"):
    """A question with a known answer at temperature 0; `expect` must stand in the answer as whole words."""

    id: Name
    prompt: Text
    expect: Text
    max_tokens: Positive = 512
    timeout: Seconds = 120.0


class ToolGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tool", tag_field="kind"):
    """The model must call `tool` with exactly `arguments`; `parameters` is the tool's JSON schema."""

    id: Name
    prompt: Text
    tool: Text
    description: str
    parameters: Table
    arguments: Table
    max_tokens: Positive = 512
    timeout: Seconds = 120.0


Gate = SmokeGate | ToolGate


class ToolEval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[bench.tool_eval]: a tool-eval-bench run. `scenarios` picks single ones instead of a preset.

    `backend_kwargs` are merged into every request (this is where `max_tokens` goes). `timeout` in seconds per request.
    """

    preset: Literal["short", "standard", "hard"] = "short"
    scenarios: tuple[str, ...] = ()
    max_turns: Positive = 8
    timeout: Seconds = 120.0
    seed: int = 42
    backend_kwargs: Table = {}


class Throughput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[bench.throughput]: a llama-benchy run; token counts and concurrency, every combination is measured `runs` times.

    `tokenizer` is a template of a path on the head node: a tokenizer.json, its folder, or a GGUF file.
    """

    tokenizer: str
    prompt: tuple[Positive, ...] = (512,)
    generate: tuple[Positive, ...] = (64,)
    depth: tuple[Annotated[int, Meta(ge=0)], ...] = (0,)
    concurrency: tuple[Positive, ...] = (1,)
    runs: Positive = 3


class Bench(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[bench]: what `doit bench:<recipe>` measures, with which harness image, under which label by default."""

    image: Name
    label: Name = "default"
    tool_eval: ToolEval | None = None
    throughput: Throughput | None = None


class RecipeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """recipe.toml. `model_id` is the id the engine must list under /v1/models. `image` is one of the workspace, or one
    of a registry by its digest: `name@sha256:...`.

    `files` are local files the command uses. `protect` keeps a running lane from being replaced or stopped by anything
    but `doit stop:<recipe>`.
    """

    cluster: Name
    image: ImageName
    model_id: str
    serve: Serve
    description: str = ""
    protect: bool = False
    files: tuple[str, ...] = ()
    staging: tuple[Staging, ...] = ()
    gates: tuple[Gate, ...] = ()
    bench: Bench | None = None
