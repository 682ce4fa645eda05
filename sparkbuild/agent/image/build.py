"""Build an image of kind `dockerfile`: under a temporary tag, through its gates, and only then with labels and name."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.docker.built import built, engine_of
from sparkbuild.agent.docker.bydigest import have
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, layers_of
from sparkbuild.agent.docker.program import find
from sparkbuild.agent.image.buildkit import BuildKit
from sparkbuild.agent.image.gates import failure, run_gates, sweep
from sparkbuild.agent.store.kept import sha256_of
from sparkbuild.agent.wire.lanelabels import KEY
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error, integrity_error
from sparkbuild.agent.wire.stopping import stoppable

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import Image
    from sparkbuild.agent.wire.images import BuildRequest, BuildResult, ReproRequest
    from sparkbuild.agent.wire.receipts import GateResult

OWNS_STDIN = True
PART = ".part"  # ends the tag of what has not passed its gates


def run(request: BuildRequest, reporter: Reporter) -> BuildResult:
    """Build the image, unless docker has it with this key already. Errors: kind "build" when a step or a gate fails,
    "config" when this node cannot build it, "integrity" for another context or base, "space", "node".
    """
    with (
        locked(os.path.join(request["store"], "archives", request["name"], ".build"), f"image {request['name']}"),
        stoppable(),
    ):
        return _Build(request, reporter).run()


class _Build:
    def __init__(self, request: BuildRequest, reporter: Reporter) -> None:
        self.request = request
        self.reporter = reporter
        self.engine = DockerWork(request["docker"] or SOCKET, timeout=60.0)
        check_engine(request)
        self.client = find(request["docker"])
        self.kit = BuildKit(self.client, request, reporter)

    def run(self) -> BuildResult:
        request = self.request
        part = request["reference"] + PART
        if not request["force"] and (image := built(self.engine, request["reference"], request["key"])):
            self.reporter.log(f"{request['reference']} is in docker as it was built: nothing is built")
            return image
        context = check_context(request)
        have_base(self.engine, request, self.reporter)
        sweep(self.client, request["name"])
        try:
            self.kit.build(context, part)
            layers = self._check(part)
            gates = run_gates(self.client, request["name"], part, request["gates"], self.reporter)
            if error := failure(request["name"], gates, self.kit.masked):
                raise error
            self._label(part, layers, gates)
        finally:
            self.engine.untag(part)
        return {"layers": layers, "gates": gates}

    def _check(self, part: str) -> list[str]:
        """The layers of what was built; no secret may be in what everybody can read of it."""
        image = self.engine.image(part)
        if image is None:
            raise AgentError(f"docker built {part}, and does not have it", kind="node", next="run again")
        text = json.dumps([image, self.engine.rows(f"/images/{part}/history")], ensure_ascii=False)
        for name, value in self.request["secrets"].items():
            if value and json.dumps(value, ensure_ascii=False)[1:-1] in text:
                raise AgentError(
                    f"secret {name} is in the image's settings or history, where everybody reads it",
                    kind="build",
                    wanted=f"RUN --mount=type=secret,id={name} and the file /run/secrets/{name}",
                    next="nothing was kept but docker's build cache: `docker builder prune` removes that",
                )
        if image.get("Architecture") != self.request["architecture"]:
            raise config_error(
                f"image {self.request['name']} came out for another architecture",
                found=str(image.get("Architecture")),
                wanted=self.request["architecture"],
                next="set `platform` and `build_node` in image.toml",
            )
        return layers_of(image)

    def _label(self, part: str, layers: list[str], gates: list[GateResult]) -> None:
        request = self.request
        labels = {
            KEY: request["key"],
            "sparkbuild.parts": _text(request["parts"]),
            "sparkbuild.lock": request["lock"],
            "sparkbuild.layers": _text(layers),
            "sparkbuild.gates": _text(gates),
        }
        self.kit.label(part, request["reference"], labels)
        image = self.engine.image(request["reference"]) or {}
        if layers_of(image) != layers:
            self.engine.untag(request["reference"])
            raise integrity_error("docker changed the image's layers while it was labelled", next="run again")


def check_engine(request: BuildRequest | ReproRequest) -> None:
    """Docker answers, and builds for the wanted architecture without emulation."""
    engine = engine_of(request["docker"])
    if "silent" in engine:
        raise AgentError(engine["silent"], kind="node", next=engine["next"])
    if engine["architecture"] != request["architecture"]:
        raise config_error(
            f"image {request['name']} is for another architecture than this node",
            found=engine["architecture"],
            wanted=request["architecture"],
            next="set `build_node` in image.toml to a node of that architecture",
        )


def check_context(request: BuildRequest | ReproRequest) -> str:
    """The path of the context, which is what was made."""
    path = inside(request["store"], request["context"])
    sha256 = sha256_of(path)
    if sha256 != request["sha256"]:
        raise integrity_error(
            "the build context is not what was made",
            where=path,
            found=f"sha256 {sha256}",
            wanted=f"sha256 {request['sha256']}",
            next="run again: it is made anew",
        )
    return path


def have_base(engine: DockerWork, request: BuildRequest | ReproRequest, reporter: Reporter) -> None:
    """The base is in docker: a pinned one is pulled by its digest when it is not, one of ours must be there."""
    base = request["base"]
    if base is None:
        return
    if base["pinned"]:
        name, _, digest = base["reference"].partition("@")
        found: Image | None = have(engine, name, digest, reporter, login=base["login"]).image
    else:
        found = engine.image(base["reference"])
    if found is None:
        raise AgentError(
            f"the base {base['reference']} is not in docker on this node",
            kind="node",
            next="run again: it is brought here first",
        )
    labels = (found.get("Config") or {}).get("Labels") or {}
    if base["key"] and labels.get(KEY) != base["key"]:
        raise integrity_error(
            f"{base['reference']} is not the base that was made",
            found=f"key {labels.get('sparkbuild.key', 'none')}",
            wanted=f"key {base['key']}",
        )
    if found.get("Architecture") != request["architecture"]:
        raise config_error(
            f"the base {base['reference']} is for another architecture",
            found=str(found.get("Architecture")),
            wanted=request["architecture"],
        )


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
