"""Asking this node's docker engine, through its socket: containers, images, logs. Reads only; changes.py writes.

Paths carry no version, so that each engine answers in its own: what is read here is the same from 20.10 to 28.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent.docker.loglines import frames, lines
from sparkbuild.agent.docker.shapes import shaped
from sparkbuild.agent.docker.unixhttp import Answer, NotDockerError
from sparkbuild.agent.wire.printable import one_line
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import ContainerRow, Image, Info, Inspected, Version
SOCKET = "/var/run/docker.sock"
LIMIT = 64 << 20  # bytes of one answer
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:@")
_HEX = frozenset("0123456789abcdef")


class DockerdError(AgentError):
    """The engine cannot be asked, or refuses. `problem` is one line; `status` its HTTP status, 0 when it gave none."""

    def __init__(self, problem: str, *, status: int = 0, next: str = "") -> None:  # noqa: A002 - as in AgentError
        super().__init__(problem, kind="node", next=next)
        self.problem = problem
        self.status = status


def too_deep(problem: str) -> bool:
    """Whether docker has refused an image for its many layers: to run again would be to wait for nothing."""
    return "max depth exceeded" in problem


class Dockerd:
    """The engine behind a socket. `timeout` is for one answer, in seconds. All methods raise DockerdError."""

    def __init__(self, socket: str = SOCKET, timeout: float = 5.0) -> None:
        self.socket = socket
        self.timeout = timeout

    def get(self, path: str) -> Mapping[str, object]:
        """The JSON object that a path answers, its known fields of the types that answers.py gives them (`shaped`); the
        path is quoted already.
        """
        answer = self._json(path)
        if not isinstance(answer, dict):
            raise self._another_shape(path, answer, "an object")
        return answer

    def rows(self, path: str) -> list[Mapping[str, object]]:
        """The same for a path that answers a list of objects, each of which has its `Id`."""
        answer = self._json(path)
        if not isinstance(answer, list):
            raise self._another_shape(path, answer, "a list")
        return [row for row in answer if isinstance(row, dict) and "Id" in row]

    def version(self) -> Version:
        """The engine's versions."""
        return cast("Version", self.get("/version"))

    def info(self) -> Info:
        """What the engine says of itself and its machine."""
        return cast("Info", self.get("/info"))

    def _json(self, path: str) -> Any:
        try:
            with self._open(path) as answer:
                return shaped(json.loads(answer.body(LIMIT)))
        except (OSError, ValueError, RecursionError) as error:
            raise self.silent(error) from None

    def _another_shape(self, path: str, answer: object, wanted: str) -> DockerdError:
        answered = f"{path.partition('?')[0]} gives {one_line(json.dumps(answer), 60)}, not {wanted}"
        return DockerdError(f"what answers on {self.socket} is not docker: {answered}")

    def container(self, name_or_id: str) -> Inspected | None:
        """All of one container, by its name, its id, or 12 or more digits of that."""
        name = name_or_id.lstrip("/")  # the engine itself writes names with a slash before them
        answer = self._get_one(f"/containers/{quote(name)}/json", name)
        if answer is None:
            return None
        state = answer.get("State")
        known = {"Id": "", "Name": "", "Config": {}, **answer, "State": state if isinstance(state, dict) else {}}
        container = cast("Inspected", known)
        # The engine also takes any prefix of an id for one: the name "face" would find a stranger's face0ff...
        if container["Name"].lstrip("/") == name:
            return container
        return container if len(name) >= 12 and container["Id"].startswith(name) else None

    def image(self, reference: str) -> Image | None:
        """All of one image, by name, name@digest or id."""
        image = cast("Image | None", self._get_one(f"/images/{quote(reference)}/json", reference))
        if image is None or not _HEX.issuperset(reference) or len(reference) == 64:
            return image
        # as for containers: "cafe" is a name, not the beginning of an id
        tags = [tag.rpartition(":")[0] for tag in image.get("RepoTags") or ()]
        return image if any(tag == reference or tag.endswith(f"/{reference}") for tag in tags) else None

    def images(self, *, every: bool = False) -> list[Image]:
        """A short row for each image; with `every`, also for those that are only the lower layers of others."""
        return cast("list[Image]", self.rows(f"/images/json{'?all=1' if every else ''}"))

    def containers(self, label: str = "") -> list[ContainerRow]:
        """A short row for each container, running or not; with `label` ("name" or "name=value")."""
        chosen = f"&filters={quote(json.dumps({'label': [label]}))}" if label else ""
        rows = cast("list[ContainerRow]", self.rows(f"/containers/json?all=1{chosen}"))
        # an engine that does not know the filter gives all
        return [row for row in rows if not label or label.partition("=")[0] in (row.get("Labels") or {})]

    def logs(self, container: str, *, tail: int, since: float = 0.0, follow: bool = False) -> Iterator[str]:
        """The last `tail` lines (-1: all) of a container's stdout and stderr that are younger than `since` (unix
        seconds); with `follow` goes on until the container ends. Closing the iterator hangs up.
        """
        inspected = self.container(container)
        if inspected is None:
            raise DockerdError(f"there is no container {container}", status=404)
        count = "all" if tail < 0 else str(tail)
        options = f"stdout=1&stderr=1&tail={count}&since={since:.9f}&follow={int(follow)}"
        try:
            with self._open(f"/containers/{inspected['Id']}/logs?{options}") as answer:
                if follow:
                    answer.patient()
                tty = bool(inspected["Config"].get("Tty"))
                pieces: Iterable[tuple[int, bytes]]
                pieces = ((1, block) for block in answer.blocks()) if tty else frames(answer.blocks())
                yield from lines(pieces)
        except (OSError, ValueError) as error:
            raise self.silent(error) from None

    def _get_one(self, path: str, name: str) -> Mapping[str, object] | None:
        if not name:
            return None
        try:
            return self.get(path)
        except DockerdError as error:
            if error.status == 404:
                return None
            raise

    def _open(self, path: str) -> Answer:
        """An answer with status 200; DockerdError for any other."""
        answer = Answer(self.socket, path, self.timeout)
        if answer.status == 200:
            return answer
        with answer:
            raise DockerdError(f"dockerd answers {answer.status}: {message(answer)}", status=answer.status)

    def silent(self, error: Exception) -> DockerdError:
        """Why nothing was heard of it."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            problem = f"docker is not installed or not running: no {self.socket}"
            return DockerdError(problem, next="apt-get install docker.io, or systemctl start docker")
        if isinstance(error, NotDockerError):
            problem = f"{error} answers on {self.socket}, and not docker: it has no BuildKit"
            return DockerdError(problem, next="apt-get install docker.io, or set `docker` of the node to its socket")
        if isinstance(error, PermissionError):
            user, group = _names(self.socket)
            problem = f"user {user} may not use docker: {self.socket} belongs to group {group}"
            return DockerdError(problem, next=f"sudo usermod -aG {group} {user}, then log in again")
        why = str(getattr(error, "strerror", None) or error)
        if isinstance(error, TimeoutError):
            why = f"nothing within {self.timeout:g} s"
        elif not isinstance(error, OSError):
            why = f"what it says cannot be read ({why[:200]})"
        return DockerdError(f"dockerd does not answer on {self.socket}: {why}", next="systemctl status docker")


def layers_of(image: Image) -> list[str]:
    """The layers of an image, from the bottom. [] when docker cannot tell them: its containerd store may lack a blob of
    an image that runs all the same.
    """
    return list((image.get("RootFS") or {}).get("Layers") or ())


def quote(text: str) -> str:
    """Text as a part of a path or a query. urllib.parse would take longer to load than the answer to come."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def message(answer: Answer) -> str:
    """What an error's body says, one line of it."""
    try:
        body = answer.body(1 << 20)
    except (OSError, ValueError):
        return ""
    text = body.decode(errors="replace")
    try:
        return one_line(str(json.loads(text)["message"]), 500)
    except (ValueError, KeyError, TypeError, RecursionError):
        return one_line(text, 500)


def _names(socket: str) -> tuple[str, str]:
    """Who we are, and the group that may use the socket."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        gid = os.stat(socket).st_gid
        return user, grp.getgrgid(gid).gr_name
    except OSError:
        return user, "docker"
    except KeyError:
        return user, "?"
