"""Changing the images of this node's docker: pulls, names, trial containers. Nothing here removes an image's content
but by taking away a name that was ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sparkbuild.agent.docker.engine import LIMIT, Dockerd, DockerdError, message, quote
from sparkbuild.agent.docker.shapes import shaped
from sparkbuild.agent.docker.unixhttp import Answer
from sparkbuild.agent.wire.lanelabels import CREATED, TRIAL

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import Event

_LONGEST = 1 << 20  # bytes of one event


class DockerWork(Dockerd):
    """The engine behind a socket, for work that takes its time. All methods raise DockerdError."""

    _answer: Answer | None = None

    def pull(self, repository: str, tag: str, on_event: Callable[[Event], None], login: str = "") -> None:
        """Have docker pull; `on_event` gets what it says ("status", "id", "progressDetail"). `login`: the operator's
        for that registry, as docker's header wants it; it goes to docker's socket and nowhere else.
        """
        headers = {"X-Registry-Auth": login} if re.fullmatch(r"[A-Za-z0-9_=-]+", login) else None
        self._told(f"/images/create?fromImage={quote(repository)}&tag={quote(tag)}", on_event, headers=headers)

    def load(self, pieces: Iterable[bytes], size: int, on_event: Callable[[Event], None]) -> None:
        """Have docker load a docker-archive of `size` bytes."""
        self._told("/images/load?quiet=1", on_event, pieces, size)

    def break_off(self) -> None:
        """From another thread: end what docker is at for us, which raises DockerdError there."""
        if self._answer is not None:
            self._answer.hang_up()

    def _told(
        self,
        target: str,
        on_event: Callable[[Event], None],
        content: bytes | Iterable[bytes] = b"",
        size: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Something that docker does with words on the way; hanging up in the middle ends it."""
        try:
            with Answer(
                self.socket, target, 60.0, method="POST", content=content, size=size, headers=headers
            ) as answer:
                if answer.status != 200:
                    raise DockerdError(f"docker does not do that: {message(answer)}", status=answer.status)
                self._answer = answer
                answer.patient()
                for line in _lines(answer.blocks()):
                    event = shaped(json.loads(line))
                    text = str(event.get("error") or event.get("stream") or "")
                    # on a full disk, docker's containerd store ends a load with such a line, and success
                    if event.get("error") or text.startswith("Error"):
                        raise DockerdError(text.strip(), status=500)
                    on_event(event)
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise self.silent(error) from None
        finally:
            self._answer = None

    def tag(self, image: str, reference: str) -> None:
        """Give an image (by name or id) another name; an image that had it is left without."""
        repository, _, tag = reference.rpartition(":")
        self._do("POST", f"/images/{quote(image)}/tag?repo={quote(repository)}&tag={quote(tag)}", {201})

    def untag(self, reference: str) -> None:
        """Take a name away; docker removes the image when that was the last one. Fine when it is gone already."""
        self._do("DELETE", f"/images/{quote(reference)}?noprune=0", {200, 404})

    def trial(self, image: str) -> None:
        """Make a container of the image and remove it: on a full disk, docker may list an image that cannot run."""
        self.sweep_trials()
        body = json.dumps({"Image": image, "Cmd": ["/"], "Labels": {TRIAL: image}}).encode()
        answer = self._object(self._do("POST", "/containers/create", {201}, body))
        container = answer.get("Id")
        if not isinstance(container, str) or not container:
            raise self._another_shape("/containers/create", answer, "an Id")
        self._do("DELETE", f"/containers/{quote(container)}?force=1", {204, 404})

    def sweep_trials(self) -> None:
        """Remove trial containers that a lost connection left: each holds its image. One that is just being made by
        somebody else has served its purpose as well.
        """
        for box in self.containers(TRIAL):
            if box.get("State") == CREATED:
                self._do("DELETE", f"/containers/{box['Id']}?force=1", {204, 404, 409})

    def post(self, target: str) -> Mapping[str, object]:
        """Have docker do something that answers with JSON."""
        return self._object(self._do("POST", target, {200}))

    def _object(self, answer: bytes) -> Mapping[str, object]:
        try:
            content = shaped(json.loads(answer or b"{}"))
        except (ValueError, RecursionError) as error:
            raise self.silent(error) from None
        return content if isinstance(content, dict) else {}

    def _do(self, method: str, target: str, wanted: set[int], content: bytes = b"") -> bytes:
        try:
            with Answer(self.socket, target, 120.0, method=method, content=content) as answer:
                if answer.status not in wanted:
                    raise DockerdError(f"docker refuses: {message(answer)}", status=answer.status)
                return b"" if answer.status == 204 else answer.body(LIMIT)
        except (OSError, ValueError) as error:
            raise self.silent(error) from None


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line for line in whole if line.strip())
        if len(rest) > _LONGEST:
            raise ValueError("a line without an end")
    if rest.strip():
        yield rest
