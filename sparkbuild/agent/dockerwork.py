"""Changing the images of this node's docker: pulls, names, trial containers. Nothing here removes an image's content
but by taking away a name that was ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from sparkbuild.agent.dockerd import LIMIT, Dockerd, DockerdError, message, quote
from sparkbuild.agent.unixhttp import Answer

_LONGEST = 1 << 20  # bytes of one event


class DockerWork(Dockerd):
    """The engine behind a socket, for work that takes its time. All methods raise DockerdError."""

    def pull(self, repository: str, tag: str, on_event: Callable[[dict[str, Any]], None]) -> None:
        """Have docker pull; `on_event` gets what it says ("status", "id", "progressDetail"). Hanging up in the middle
        ends the pull.
        """
        target = f"/images/create?fromImage={quote(repository)}&tag={quote(tag)}"
        try:
            with Answer(self.socket, target, 60.0, method="POST") as answer:
                if answer.status != 200:
                    raise DockerdError(f"docker does not pull: {message(answer)}", status=answer.status)
                answer.patient()
                for line in _lines(answer.blocks()):
                    event = json.loads(line)
                    if event.get("error"):
                        raise DockerdError(str(event["error"]), status=500)
                    on_event(event)
        except (OSError, ValueError, AttributeError) as error:
            raise self.silent(error) from None

    def tag(self, image: str, reference: str) -> None:
        """Give an image (by name or id) another name; an image that had it is left without."""
        repository, _, tag = reference.rpartition(":")
        self._do("POST", f"/images/{quote(image)}/tag?repo={quote(repository)}&tag={quote(tag)}", {201})

    def untag(self, reference: str) -> None:
        """Take a name away; docker removes the image when that was the last one. Fine when it is gone already."""
        self._do("DELETE", f"/images/{quote(reference)}?noprune=0", {200, 404})

    def trial(self, image: str) -> None:
        """Make a container of the image and remove it: on a full disk, docker may list an image that cannot run."""
        body = json.dumps({"Image": image, "Cmd": ["/"], "Labels": {"sparkbuild.trial": image}}).encode()
        made = json.loads(self._do("POST", "/containers/create", {201}, body))
        self._do("DELETE", f"/containers/{made['Id']}?force=1", {204, 404})

    def images(self) -> list[dict[str, Any]]:
        """A short row (ImageList) for each image, also those without a name."""
        found = self.get("/images/json?all=1")
        return found if isinstance(found, list) else []

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
