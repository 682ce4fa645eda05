"""Have this node's docker pull an image whose layers are here or arrive: no layer that docker has is asked for."""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.held import remove
from sparkbuild.agent.docker import partload
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, DockerdError, layers_of, too_deep
from sparkbuild.agent.docker.images import Wanted, missing, problem
from sparkbuild.agent.docker.registry import MANIFEST, Image, Registry, is_left
from sparkbuild.agent.store.blobs import is_whole, path_of
from sparkbuild.agent.store.kept import sha256_of
from sparkbuild.agent.store.receive import Receiver, Source
from sparkbuild.agent.wire.dockerarchive import pieces, size_of
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import Event
    from sparkbuild.agent.wire.engine import PullRequest, PullResult

NAME = "\0sparkbuild-pull"  # freed by the kernel with its holder, as in hold.py
TRIES = 4
BIG = 2 << 30  # bytes of layers that are worth keeping by a name of their own
_PAUSES = (1.0, 3.0, 8.0)  # seconds before docker is asked again: it may be starting
_FULL = re.compile(r"no space left|disk quota|not enough space", re.IGNORECASE)


def run(request: PullRequest, reporter: Reporter) -> PullResult:
    """See PULL. Emits progress "docker". Waits while another pull is at work on this node, and does nothing when that
    has brought the image. Errors: kind "space", "integrity", "node".
    """
    threading.Thread(target=_beat, args=(reporter,), daemon=True).start()
    with _alone(reporter):
        return _Pull(request, reporter).run()


def _beat(reporter: Reporter) -> None:
    """By these, the caller can break off while docker says nothing."""
    while True:
        time.sleep(0.5)
        reporter.emit("beat")


class _HasLayerError(Exception):
    """Docker asks for a layer that it has under another name."""


class _Pull:
    """One image on its way into docker."""

    def __init__(self, request: PullRequest, reporter: Reporter) -> None:
        self._request = request
        self._reporter = reporter
        self._engine = DockerWork(request["docker"] or SOCKET)
        self._folder = inside(request["store"], request["folder"])
        self._arriving = set(request["arriving"])
        self._token = secrets.token_hex(16)
        sources = [Source(giver["host"], giver["port"], request["token"]) for giver in request["sources"]]
        self._receiver = Receiver(self._folder, sources, lambda _count: None)
        layers = [(layer["sha256"], layer["size"]) for layer in request["layers"]]
        self._image = Image(request["config"].encode(), layers)
        self._total = sum(size for sha256, size in layers if sha256 in self._arriving)
        self._query: Wanted = {
            "reference": request["reference"],
            "key": request["key"],
            "architecture": request["architecture"],
            "layers": [f"sha256:{sha256}" for sha256, _ in layers],
        }
        self._partly = not request.get("containerd")  # whether layers that docker has may be left out of a load
        self._fetched = 0
        self._has = False  # docker asked for a layer that it has
        self._given: set[str] = set()  # layers that docker asked for
        self._extra: set[str] = set()  # layers that were received here, beyond those that arrive
        self._progress: dict[str, tuple[int, int]] = {}

    def run(self) -> PullResult:
        engine, reference = self._engine, self._request["reference"]
        image = engine.image(reference)
        if image is not None and not problem(image, self._query):
            self._reporter.log(f"{reference} is there")
            return {"layers": layers_of(image), "fetched": 0, "found": True}
        os.makedirs(self._folder, exist_ok=True)
        registry = Registry(self._folder, self._token, self._fetch)
        try:
            name = self._pulled(registry)
        except _HasLayerError:
            name = self._loaded(registry)
        if self._total:  # of a small layer, docker need not say that it came
            self._reporter.progress("docker", self._total, self._total)
        image = engine.image(name)
        if image is not None and not layers_of(image):
            self._complete(name)
            image = engine.image(name)
        why = "" if image is None else problem(image, {**self._query, "reference": name})
        if image is None or why:
            raise integrity_error(why or f"docker took {name} and does not have it")
        self._trial(image["Id"])
        if name != reference:
            engine.tag(image["Id"], reference)
        self._clean()
        return {"layers": layers_of(image), "fetched": self._fetched}

    def _pulled(self, registry: Registry) -> str:
        """Pull it; the name it has then."""
        if not self._arriving and self._partly:
            raise _HasLayerError
        for tag, image in self._steps():
            registry.offer(tag, image)
            self._try(partial(self._engine.pull, registry.repository, tag, self._said))
            if image is not self._image:
                self._reporter.log(f"docker keeps the lowest {len(image.layers)} layers")
        return f"{registry.repository}:whole"

    def _loaded(self, registry: Registry) -> str:
        """Load it without the layers that docker has; where that does not work either, it pulls these as well."""
        reference = self._request["reference"]
        self._reporter.log("docker has layers that it would pull again: loading the others")
        members = partload.without(self._image, reference, self._arriving, self._folder)
        try:
            self._engine.load(pieces(members), size_of(members), self._said)
            return str(reference)
        except DockerdError as error:
            if _FULL.search(error.problem):
                raise self._full(error.problem) from None
            self._reporter.log(f"docker: {error.problem}; it gets all layers")
        self._partly = self._has = False
        return self._pulled(registry)

    def _complete(self, name: str) -> None:
        """Give docker the layers that it left out of a pull, since it keeps them as other blobs."""
        image = self._image
        left_out = [(sha256, size) for sha256, size in image.layers if sha256 not in self._given]
        count = f"{len(left_out)} of {len(image.layers)} layers"
        self._reporter.log(f"docker keeps {count} in another compression: they are brought to it as well")
        for sha256, size in left_out:
            self._receive(sha256, size)
        layers = [partload.layer(partload.blob_path(sha256), self._folder, sha256, size) for sha256, size in left_out]
        members = partload.layout(
            name, MANIFEST, [image.manifest], [partload.blob(image.digest, image.config), *layers]
        )
        self._try(lambda: self._engine.load(pieces(members), size_of(members), self._said))

    def _steps(self) -> list[tuple[str, Image]]:
        """What to pull, one after the other: first those with the lowest layers only, wherever about `big` bytes of
        layers are missing, so that these stay when the rest is broken off.
        """
        big, size, steps = int(self._request.get("big") or BIG), 0, []
        layers = self._image.layers
        have = len(layers) - len(missing(self._engine, self._query["layers"]))
        for index, (_, bytes_) in enumerate(layers[:-1]):
            size += bytes_ if index >= have else 0
            if size >= big and sum(rest for _, rest in layers[index + 1 :]) >= big // 2:
                steps.append((f"p{index + 1}", self._image.cut(index + 1)))
                size = 0
        return [*steps, ("whole", self._image)]

    def _try(self, work: Callable[[], None]) -> None:
        for turn in range(TRIES):
            try:
                work()
                break
            except DockerdError as error:
                if self._has:
                    raise _HasLayerError from None
                if _FULL.search(error.problem):
                    raise self._full(error.problem) from None
                if too_deep(error.problem):
                    raise config_error(
                        f"docker takes no image of so many layers: {self._request['reference']}",
                        found=error.problem,
                        wanted="at most 125 layers, those of the base among them",
                        next="fewer steps in the Dockerfile, or files taken from a stage by one COPY --from",
                    ) from None
                if turn + 1 == TRIES:
                    raise AgentError(
                        f"docker does not take {self._request['reference']}",
                        kind="not pulled",
                        found=error.problem,
                        next="run again: the layers that have arrived are kept",
                    ) from None
                self._reporter.log(f"docker: {error.problem}; once more")
            self._drop_wrong()
            time.sleep(_PAUSES[turn])

    def _said(self, event: Event) -> None:
        status, layer = event.get("status", ""), event.get("id", "")
        detail = event.get("progressDetail") or {}
        if status == "Downloading" and detail.get("total"):
            self._progress[layer] = (detail.get("current", 0), detail["total"])
        elif status in {"Pull complete", "Already exists", "Download complete"}:
            self._reporter.log(f"docker: {layer} {status}")
            self._progress[layer] = (self._progress.get(layer, (0, 0))[1],) * 2
        if self._total:
            done = sum(done for done, _ in self._progress.values())
            self._reporter.progress("docker", min(self._total, done), self._total)

    def _fetch(self, sha256: str, size: int) -> None:
        """Docker wants a layer: it is here, arrives, or is fetched now."""
        self._given.add(sha256)
        if is_whole(self._folder, sha256, size) or sha256 in self._arriving:
            return
        if self._partly:
            self._has = True
            self._engine.break_off()
            raise ConnectionError("it has that layer")
        try:
            self._receive(sha256, size)
        except AgentError as error:
            self._reporter.log(f"a layer that docker wants cannot be had: {error.fields['found']}")
            raise ConnectionError(str(error)) from None

    def _receive(self, sha256: str, size: int) -> None:
        self._fetched += self._receiver.receive(sha256, size)
        self._extra.add(sha256)

    def _drop_wrong(self) -> None:
        """After a power failure, a file may be there under its name without its content."""
        for sha256, size in self._image.layers:
            path = path_of(self._folder, sha256)
            if is_whole(self._folder, sha256, size) and sha256_of(path) != sha256:
                self._reporter.log(f"layer {sha256[:12]} is not what was received: removed")
                os.unlink(path)
                self._arriving.discard(sha256)

    def _trial(self, image: str) -> None:
        try:
            self._engine.trial(image)
        except DockerdError as error:
            if _FULL.search(error.problem):
                raise self._full(error.problem) from None
            raise AgentError(
                "docker has the image, and can make no container of it", kind="node", found=error.problem
            ) from None

    def _full(self, text: str) -> AgentError:
        return AgentError(
            "docker's disk is full",
            kind="space",
            found=text,
            next="`docker system df` there says what takes the room; the layers that have arrived are kept",
        )

    def _clean(self) -> None:
        """Take away the names of this pull, and of those that were broken off; and what nobody else clears."""
        for sha256 in self._extra - self._arriving:
            remove(path_of(self._folder, sha256))
        for row in self._engine.images(every=True):
            for name in [*(row.get("RepoTags") or ()), *(row.get("RepoDigests") or ())]:
                if is_left(name):
                    with suppress(DockerdError):
                        self._engine.untag(name)


@contextmanager
def _alone(reporter: Reporter) -> Iterator[None]:
    """One at a time on this node: docker takes two loads at once badly."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as claim:
        told = False
        while True:
            try:
                claim.bind(NAME)
                break
            except OSError:
                if not told:
                    reporter.log("another image is being brought into docker on this node: waiting for that")
                told = True
                time.sleep(0.2)
        yield
