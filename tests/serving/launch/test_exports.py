"""Exports in a launch: the mounts of their manifests, the names that templates see, what a lane is said to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError, SparkbuildError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.serving.lane import lane_goal
from sparkbuild.serving.launch import container, launching
from sparkbuild.serving.launch.mounted import Mounted
from sparkbuild.serving.launch.render import Bind, Launch, launch
from sparkbuild.serving.launch.runtime import Order, request_of
from sparkbuild.workspace.shapes.schema import Mount
from tests.serving.lanes import NODES, WEIGHTS, below, goal, rank, spec

FOLDER = "/srv/store/exported/demo/weights/model"
EXPORTS = {"model": {"path": "exported/demo/weights/model", "target": "/model", "block": "weights"}}
SELF = Bind(FOLDER, "/model", read_only=True)
PAGE = Bind("/mnt/nas/blobs/00/aa", "/model/page15/engram-01.bin", read_only=True)
KNOWN = {"model": (SELF, PAGE)}


def launched(number: int = 0, manifests: Mapping[str, tuple[Bind, ...]] | None = None, **changes: Any) -> Launch:
    return launch(spec(exports=EXPORTS, **changes), rank(number), {}, manifests)


def test_all_mounts_of_the_manifest_are_mounted() -> None:
    made = launched(manifests=KNOWN, command=("engine", "{{ exports.model }}", "{{ staged.weights }}"))
    assert made.argv == ("engine", "/model", WEIGHTS)
    assert made.mounts == (Bind(WEIGHTS, WEIGHTS, read_only=True), SELF, PAGE)
    assert made.pending == ()


def test_a_great_many_of_them() -> None:
    pages = tuple(Bind(f"/mnt/nas/{number}", f"/model/page15/{number}", read_only=True) for number in range(171))
    made = launched(manifests={"model": (SELF, *pages)})
    order = Order(goal(exports=EXPORTS), rank(), made, "l1")
    assert len(container.binds(order)) == 173


def test_what_is_not_staged_yet_is_said() -> None:
    made = launched()
    assert made.mounts == (Bind(WEIGHTS, WEIGHTS, read_only=True), SELF)
    assert made.pending == ("model",)
    with pytest.raises(SparkbuildError, match="its exports are not as they were made") as raised:
        launching.refuse_pending(goal(), ((rank(), made),))
    assert raised.value.found == "dgx1: model"


def test_a_process_has_the_folder_itself() -> None:
    made = launched(runtime="process", command=("engine", "{{ exports.model }}"))
    assert made.argv[1] == FOLDER
    assert (made.mounts, made.pending) == ((), ())


def test_a_rank_without_the_block_has_no_export() -> None:
    made = launched(1, KNOWN, staged_ranks={"weights": (0,)})
    assert (made.mounts, made.pending, made.uses) == ((), (), ())
    with pytest.raises(ConfigError, match="a template cannot be filled in"):
        launched(1, KNOWN, staged_ranks={"weights": (0,)}, command=("{{ exports.model }}",))


def test_two_mounts_at_one_target() -> None:
    mounts = (Mount(source="/srv/x", target="/model/page15/engram-01.bin"),)
    with pytest.raises(ConfigError, match="two mounts have one target"):
        launched(manifests=KNOWN, mounts=mounts)


def test_what_a_lane_uses_is_in_its_record() -> None:
    """Folders of the node; not each file on the NAS."""
    made = launched(manifests=KNOWN, mounts=(Mount(source="/srv/x", target="/x"),))
    assert made.uses == (WEIGHTS, FOLDER, "/srv/x")
    assert request_of(Order(goal(), rank(), made, "l1"))["uses"] == [WEIGHTS, FOLDER, "/srv/x"]


def exported(node: str, content: str = "1") -> Goal:
    uri = Uri("export", node, "demo/weights/model")
    return Goal(task=f"stage:demo:{node}:weights:model", uri=uri, key=Key({"content": content}), doc="")


def lane(*content: str) -> Goal:
    exports = [{"model": exported(node, text)} for node, text in zip(NODES, content, strict=True)]
    staged = [{"weights": (below("staged", node, "demo/weights"),)} for node in NODES]
    images = [below("image", node, "demo-ranks") for node in NODES]
    wanted = spec(exports=EXPORTS if content else {})
    return lane_goal("pair", NODES, wanted, images=images, staged=staged, inputs=(), exports=exports)


def test_the_lane_needs_them_and_follows_from_them() -> None:
    made = lane("1", "2")
    assert [need.node for need in made.needs if need.uri.scheme == "export"] == list(NODES)
    assert made.key.parts["exports"] == {"model": exported("dgx1", "1").key.short}, "that of the first rank"
    assert lane("1", "1").key == made.key != lane("2", "2").key
    assert "exports" not in goal().key.parts, "lanes of before keep their key"


class Fake:
    """A node's agent that knows one manifest."""

    def __init__(self, fact: dict[str, Any]) -> None:
        self.fact, self.asked = fact, 0

    def call(self, verb: str, request: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        query = {"scheme": "export", "dst": EXPORTS["model"]["path"], "key": ""}
        assert (verb, request["queries"]) == ("facts", [query])
        self.asked += 1
        return {"facts": [self.fact]}


def answer(key: Key, **changes: Any) -> dict[str, Any]:
    mounts = [{"source": one.source, "target": one.target, "read_only": True} for one in (SELF, PAGE)]
    whole = {"parts": key.parts, "commit": "", "files": 2, "problems": []}
    return {"present": True, "key": key.digest, "mounts": mounts, **whole, **changes}


def test_the_nodes_are_asked_and_anew_before_a_launch() -> None:
    made = lane("1", "2")
    nodes = {"dgx1": Fake(answer(exported("dgx1").key)), "dgx2": Fake({"present": False, "busy": ""})}
    agent: Callable[[str], Any] = nodes.__getitem__
    mounted = Mounted(agent)
    assert mounted.of(made) == {"dgx1": KNOWN, "dgx2": {}}
    nodes["dgx2"].fact = answer(exported("dgx2", "2").key)
    assert mounted.of(made)["dgx2"] == {}
    assert mounted.of(made, again=True)["dgx2"] == KNOWN
    assert nodes["dgx1"].asked == 2


def test_a_manifest_of_another_export_is_not_believed() -> None:
    nodes = dict.fromkeys(NODES, Fake(answer(Key({"content": "old"}))))
    assert Mounted(nodes.__getitem__).of(lane("1", "2")) == {"dgx1": {}, "dgx2": {}}


def test_without_exports_nobody_is_asked() -> None:
    assert Mounted({}.__getitem__).of(goal()) == {}
