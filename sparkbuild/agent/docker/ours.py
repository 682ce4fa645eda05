"""Containers of lanes on this node: those that a launch of ours made, in any state. They are only looked at here."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.wire import lanelabels
from sparkbuild.agent.wire.lanelabels import ALIVE, BY, KEY, LAUNCH, RECIPE, STORE, is_lanes
from sparkbuild.agent.wire.printable import one_line

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import ContainerRow, State
    from sparkbuild.agent.wire.records import Box, LaneRecord

LABEL = 200  # characters of a label that are shown


def lanes(engine: Dockerd, entries: Iterable[ContainerRow]) -> list[ContainerRow]:
    """Those of some containers that are lanes'. Raises DockerdError."""
    images: dict[str, dict[str, str] | None] = {}
    lanes_of_ours = []
    for entry in entries:
        labels, image = entry.get("Labels") or {}, str(entry.get("ImageID") or "")
        if RECIPE not in labels:
            continue
        if image not in images:
            inspected = engine.image(image.partition(":")[2]) if image else {}
            images[image] = None if inspected is None else (inspected.get("Config") or {}).get("Labels") or {}
        if is_lanes(labels, images[image], name_of(entry)):
            lanes_of_ours.append(entry)
    return lanes_of_ours


class Shelf:
    """The lanes' containers as they are at one moment, asked of docker when first wanted. `problem` says why docker
    did not answer; a node without docker has no containers, and that is no problem of lanes that need none.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._boxes: list[Box] | None = None
        self._problem = ""
        self._guard = threading.Lock()
        self._mounts: dict[str, list[str]] | None = None
        self._mounts_problem = ""

    @property
    def mounts(self) -> dict[str, list[str]]:
        """What the running containers of this node, of anybody, have mounted of it: paths, by the container's name."""
        self._look_at_mounts()
        return self._mounts or {}

    @property
    def mounts_problem(self) -> str:
        """Why docker does not say, though we may ask it; "" when it did, and where there is none for us."""
        self._look_at_mounts()
        return self._mounts_problem

    @property
    def boxes(self) -> list[Box]:
        """All of them, newest first."""
        self._look()
        return self._boxes or []

    @property
    def problem(self) -> str:
        """Why docker did not answer, "" when it did."""
        self._look()
        return self._problem

    def of(self, recipe: str) -> list[Box]:
        """Those of one recipe."""
        return [box for box in self.boxes if box["recipe"] == recipe]

    def box(self, container: str) -> Box | None:
        """The one with that id."""
        return next((box for box in self.boxes if container and box["id"] == container), None)

    def state(self, box: Box) -> State:
        """Docker's own words about one of them, asked now; {} when it does not answer."""
        try:
            container = Dockerd(self._socket).container(box["id"])
        except DockerdError:
            return {}
        return container["State"] if container else {}

    def stranger(self, recipe: str) -> str:
        """What stands in the place of the recipe's container and is not ours, in words; "" when nothing does."""
        try:
            engine = Dockerd(self._socket)
            container = engine.container(lanelabels.name_of(recipe))
            if container is None:
                return ""
            config = container["Config"]
            row: ContainerRow = {
                "Id": container["Id"], "Names": [container["Name"]], "Labels": config.get("Labels") or {},
                "ImageID": container.get("Image"),
            }  # fmt: skip
            if lanes(engine, [row]):
                return ""
        except DockerdError:
            return ""
        return f"{container['Id'][:12]} of image {config.get('Image', '?')}, {container['State'].get('Status', '?')}"

    def _look(self) -> None:
        with self._guard:
            if self._boxes is not None:
                return
            try:
                engine = Dockerd(self._socket)
                self._boxes = [_box(entry) for entry in lanes(engine, engine.containers(RECIPE))]
            except DockerdError as error:
                self._boxes, self._problem = [], error.problem

    def _look_at_mounts(self) -> None:
        with self._guard:
            if self._mounts is not None:
                return
            self._mounts = {}
            if not os.access(self._socket, os.R_OK | os.W_OK):
                return
            try:
                listed = Dockerd(self._socket).containers()
            except DockerdError as error:
                self._mounts_problem = error.problem
                return
            self._mounts = {name_of(entry): _sources(entry) for entry in listed if entry.get("State") in ALIVE}


def not_serving(state: State, record: LaneRecord | None) -> str:
    """Why a container that lives is not what its launch started and its gates checked, "" when it is. A record of
    before the time of the start was noted says nothing of it.
    """
    at = str(state.get("StartedAt") or "")
    if is_frozen(state):
        return f"it is {state['Status']}"
    launched = record.get("started", "") if record else ""
    if launched and at and at != launched:
        return f"it was started again, by somebody else, at {at[:19].replace('T', ' ')} UTC"
    return ""


def is_frozen(state: State) -> bool:
    """True for a container that lives and cannot serve."""
    return state.get("Status") in {"paused", "restarting"}


def _box(entry: ContainerRow) -> Box:
    labels = entry.get("Labels") or {}
    return {
        "id": entry["Id"],
        "name": name_of(entry),
        "recipe": one_line(labels[RECIPE], LABEL),  # whoever makes a container labels it
        "key": one_line(labels.get(KEY, ""), LABEL),
        "launch": one_line(labels.get(LAUNCH, ""), LABEL),
        "store": one_line(labels.get(STORE, ""), LABEL),
        "by": one_line(labels.get(BY, ""), LABEL),
        "state": str(entry.get("State", "")),
        "status": str(entry.get("Status", "")),
        "created": created_at(entry),
    }


def created_at(entry: ContainerRow) -> int:
    """Unix seconds at which a container was made, 0 when docker does not say."""
    created = entry.get("Created")
    return created if isinstance(created, int) else 0


def name_of(entry: ContainerRow) -> str:
    """A container's name, "" for one that docker is removing."""
    return (entry.get("Names") or [""])[0].lstrip("/")


def _sources(entry: ContainerRow) -> list[str]:
    sources = (str(mount.get("Source") or "") for mount in entry.get("Mounts") or ())
    return [os.path.normpath(source) for source in sources if source.startswith("/")]
