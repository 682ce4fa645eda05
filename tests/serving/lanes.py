"""Lanes for tests: recipes in docker on one or two nodes, their goals, ranks and orders."""

from __future__ import annotations

from typing import Any

from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.serving.lane import LaneSpec, lane_goal
from sparkbuild.serving.launch.fabric import Fabric, alone
from sparkbuild.serving.launch.render import Launch, Rank, launch
from sparkbuild.serving.launch.runtime import Order
from sparkbuild.workspace.shapes.schema import SmokeGate

IMAGE = "sparkbuild/demo-ranks:0123456789ab"
WEIGHTS = "/srv/store/staged/demo/weights"
NODES = ("dgx1", "dgx2")
# a container on dgx2 that another store's operator launched, and what is said of it
FOREIGN = {
    "id": "e" * 64,
    "name": "sparkbuild-demo",
    "recipe": "demo",
    "launch": "l9",
    "store": "5e1f",
    "by": "bob@desk",
}
FOREIGN_TEXT = (
    "container sparkbuild-demo (eeeeeeeeeeee) on dgx2 is of lane demo of another store"
    " (5e1f, launch l9, launched by bob@desk): only doit stop:demo of that workspace ends it"
)
PLACES = (
    Fabric("dgx1", "10.0.0.1", "fast0", "10.0.0.0/24", "the only network", ("rocep1s0f0", "roceP2p1s0f0"), 3),
    Fabric("dgx2", "10.0.0.2", "fast1", "10.0.0.0/24", "the only network"),
)


def spec(**changes: Any) -> LaneSpec:
    fields: dict[str, Any] = {
        "recipe": "demo",
        "folder": "recipes/demo",
        "command": ("engine", "serve"),
        "env": {},
        "secrets": (),
        "port": 8000,
        "model_id": "smollm2",
        "ready_timeout": 60.0,
        "stop_grace": 5.0,
        "protect": False,
        "image": IMAGE,
        "staged": {"weights": "staged/demo/weights"},
        "lock": "demo@1234",
        "gates": (SmokeGate(id="copy", prompt="Say 42.", expect="42"),),
        "runtime": "docker",
        "image_paths": {"python": "/opt/venv/bin/python", "files": "/opt/files"},
        "cluster": "pair",
    }
    return LaneSpec(**{**fields, **changes})


def below(scheme: str, node: str, path: str) -> Goal:
    return Goal(task=path, uri=Uri(scheme, node, path), key=Key({"content": "1"}), doc="")


def goal(nodes: tuple[str, ...] = NODES, *, inputs: tuple[Input, ...] = (), **changes: Any) -> Goal:
    return lane_goal(
        "pair",
        nodes,
        spec(**changes),
        images=[below("image", node, "demo-ranks") for node in nodes],
        staged=[{"weights": (below("staged", node, "demo/weights"),)} for node in nodes],
        inputs=inputs,
    )


def rank(number: int = 0, world_size: int = 2, *, files: str = "") -> Rank:
    """dgx1 is the head, with RDMA devices; dgx2 has none."""
    place = PLACES[number] if world_size > 1 else alone("dgx1")
    head = PLACES[0].address if world_size > 1 else "127.0.0.1"
    return Rank(f"dgx{number + 1}", number, world_size, "/srv/store", place.address, head, place, files)


def launched(number: int = 0, values: dict[str, str] | None = None, *, files: str = "", **changes: Any) -> Launch:
    """`values` are those of the secrets."""
    wanted = spec(secrets=tuple(values or ()), **changes)
    return launch(wanted, rank(number, files=files), values or {})


def order(number: int = 0, values: dict[str, str] | None = None, **changes: Any) -> Order:
    """The launch l1 of a rank."""
    folder = "/dev/shm/sparkbuild-1000/demo-0/l1" if values else ""
    wanted = goal(secrets=tuple(values or ()), **changes)
    return Order(wanted, rank(number), launched(number, values, **changes), "l1", folder, "ann@desk, process 7")
