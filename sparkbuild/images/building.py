"""Building an image of kind `dockerfile`: its context is made where its sources are, sent to the build node, built
there, and exported there.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.wire.images import (
    BUILD,
    CONTEXT,
    DISCARD,
    EXPORT,
    REPRO,
    BaseAsk,
    BuildAsk,
    BuildInputs,
    ContextAsk,
    ContextResult,
    ContextSource,
    DebFile,
    DiscardAsk,
    ExportAsk,
    Gate,
    NamedPatch,
    ReproResult,
)  # fmt: skip
from sparkbuild.core.errors import LockError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.core.key import Key
from sparkbuild.core.run import Run, call
from sparkbuild.core.secrets import read_secrets
from sparkbuild.images.content import describe, remember
from sparkbuild.images.docker import reference
from sparkbuild.images.dockerfile import DockerfileSpec, missing
from sparkbuild.images.rendering import dockerfile, refuse_secrets, shown
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.upstream.logins import login_for
from sparkbuild.workspace.locks import baseimage


class Builder:
    """Builds images of one workspace."""

    def __init__(self, root: str, nodes: Nodes) -> None:
        self._root = root
        self._nodes = nodes

    def build(self, node: str, spec: DockerfileSpec, key: Key, run: Run) -> int:
        """Have the image in the store of its build node; returns the bytes of its layers. What the build node's docker
        has with this key already is exported again, and not built, unless the run is forced.
        """
        try:
            with self.prepared(node, spec, key, run) as request:
                image = run.call(node, BUILD, BuildAsk(**request, force=run.force))
        except Interrupted:
            run.tell("docker's build cache keeps its finished steps")
            raise
        taken = ExportAsk(
            name=spec.name,
            reference=request["reference"],
            key=key.digest,
            parts=key.parts,
            lock=spec.lock,
            gates=image["gates"],
        )
        exported = run.call(node, EXPORT, taken)
        remember(self._nodes.store(LOCAL), spec.name, key, describe(run.agent(node), spec.name, key)[1])
        return exported["bytes"]

    def repro(self, node: str, spec: DockerfileSpec, key: Key, run: Run) -> ReproResult:
        """Build it twice without cache, and compare."""
        with self.prepared(node, spec, key, run) as request:
            return run.call(node, REPRO, request)

    @staticmethod
    def rendered(root: str, spec: DockerfileSpec) -> str:
        """The Dockerfile. ConfigError when the template cannot be filled in, or says what it may not."""
        with open(os.path.join(root, spec.dockerfile), "rb") as file:
            return dockerfile(spec, file.read().decode(errors="replace"))

    @contextmanager
    def prepared(self, node: str, spec: DockerfileSpec, key: Key, run: Run) -> Iterator[BuildInputs]:
        """The request of a build, whose context is on the build node while the block runs."""
        if problem := missing(spec):
            raise LockError(f"image {spec.name} cannot be built", found=problem, next=f"see {spec.folder}/README.md")
        text = self.rendered(self._root, spec)
        secrets = read_secrets(self._root, spec.secrets, f"{spec.folder}/image.toml")
        refuse_secrets(spec, text, secrets)
        run.note(f"--- Dockerfile\n{text.rstrip()}\n---")
        context = run.call(LOCAL, CONTEXT, self._context(spec, key, text))
        try:
            if node != LOCAL:
                self._send(node, context, run)
            yield BuildInputs(
                name=spec.name,
                reference=reference(spec.name, key),
                key=key.digest,
                parts=key.parts,
                lock=spec.lock,
                context=context["path"],
                sha256=context["sha256"],
                base=_base(spec),
                architecture=spec.architecture,
                network=spec.network,
                args={name: shown(value) for name, value in spec.args.items()},
                secrets=secrets,
                epoch=spec.epoch,
                gates=[
                    Gate(
                        id=gate.id,
                        command=list(gate.command),
                        expect=gate.expect,
                        timeout=gate.timeout,
                        env=gate.env,
                    )
                    for gate in spec.gates
                ],
            )
        finally:
            for place in dict.fromkeys((LOCAL, node)):
                request = DiscardAsk(name=spec.name, discard=context["path"])
                with suppress(SparkbuildError):  # the next build removes it, and what went wrong before is the news
                    call(self._nodes.agent(place), DISCARD, request, final=True)

    def _context(self, spec: DockerfileSpec, key: Key, text: str) -> ContextAsk:
        return ContextAsk(
            name=spec.name,
            key=key.digest,
            dockerfile=text,
            sources=[
                ContextSource(
                    component=source.component,
                    archive=source.archive,
                    patches=[NamedPatch(name=path, text=self._encoded(path)) for path in source.patches],
                )
                for source in spec.sources
            ],
            artifacts=[DebFile(sha256=file.sha256, filename=file.filename) for file in spec.artifacts.values()],
            files={os.path.basename(path): self._encoded(path) for path in spec.files},
            epoch=spec.epoch,
        )

    def _send(self, node: str, context: ContextResult, run: Run) -> None:
        source = os.path.join(self._nodes.store(LOCAL), context["path"])
        self._nodes.agent(node).put(
            context["path"], source, context["sha256"], run.passing(f"send the context to {node}")
        )

    def _read(self, path: str) -> bytes:
        with open(os.path.join(self._root, path), "rb") as file:
            return file.read()

    def _encoded(self, path: str) -> str:
        return base64.b64encode(self._read(path)).decode()


def _base(spec: DockerfileSpec) -> BaseAsk | None:
    if spec.base is None:
        return None
    pinned = not spec.base.key
    image = baseimage.parse(spec.base.name, spec.base.reference) if pinned else None
    login = login_for(image) if image is not None else ""
    return BaseAsk(reference=spec.base.reference, key=spec.base.key, pinned=pinned, login=login)
