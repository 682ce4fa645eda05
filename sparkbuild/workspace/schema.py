"""The shapes of config.toml, image.toml and recipe.toml. A key that is not here is an error.

A new key goes into the template of its file too (template/), with a comment: a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z", max_length=64)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(pattern=r"\S")]


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine. `store` is where sparkbuild keeps images, artifacts, staged data and lanes on it; a relative path is
    inside the workspace.
    """

    connection: Literal["local"] = "local"
    store: str = ".sparkbuild/node"


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An ordered list of nodes; the position is the rank."""

    nodes: Annotated[tuple[Name, ...], Meta(min_length=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """config.toml. `pools` bounds how many steps of one kind run at once."""

    nodes: dict[Name, Node] = {}
    clusters: dict[Name, Cluster] = {}
    pools: dict[Name, Positive] = {}


class ImageFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """image.toml. Kind `venv`: a Python environment from locked wheels.

    `lock` names `locks/<lock>.source.lock`, which pins `requirements` by sha256. `files` are copied into the image.
    `imports` must import inside it before it counts as built. `python` is the least version it works with.
    """

    kind: Literal["venv"]
    lock: Name
    requirements: str = "requirements.lock"
    description: str = ""
    files: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    python: Annotated[str, Meta(pattern=r"^3\.\d+\Z")] = "3.10"


class Staging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One [[staging]] block. Kind `files`: an artifact of a lock, as plain files on each node.

    `src` is `artifact:<lock>/<component>`. An artifact named .whl or .zip is an archive: `members` are glob patterns
    over the names inside it, and a matching file lands in the staged folder under its base name. Any other artifact is
    one plain file, which lands there under its own name; `members` must match that. `dst` is a folder on the node, by
    default inside its store. `min_free` bytes stay free on the destination's file system.
    """

    id: Name
    kind: Literal["files"]
    src: Annotated[str, Meta(pattern=r"^artifact:[^/\s]+/[^/\s]+\Z")]
    members: tuple[str, ...] = ("*",)
    dst: str = ""
    min_free: Annotated[int, Meta(ge=0)] = 0


class Serve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[serve]: how the engine is started. `command` and `env` values are strict jinja2 templates.

    `secrets` names variables that are handed on from the operator's environment, or from the git-ignored file
    `secrets.env` in the workspace; their values appear nowhere else. `ready_timeout` and `stop_grace` in seconds.
    """

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    port: Port
    runtime: Literal["process"] = "process"
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    ready_timeout: Seconds = 600.0
    stop_grace: Seconds = 15.0


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
    parameters: dict[str, Any]
    arguments: dict[str, Any]
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
    backend_kwargs: dict[str, Any] = {}


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
    """recipe.toml. `model_id` is the id the engine must list under /v1/models.

    `files` are local files the command uses. `protect` keeps a running lane from being replaced or stopped by anything
    but `doit stop:<recipe>`.
    """

    cluster: Name
    image: Name
    model_id: str
    serve: Serve
    description: str = ""
    protect: bool = False
    files: tuple[str, ...] = ()
    staging: tuple[Staging, ...] = ()
    gates: tuple[Gate, ...] = ()
    bench: Bench | None = None
