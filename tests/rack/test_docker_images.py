"""Docker images on a real node: assembled here from locked files, sent over ssh, loaded, believed only when right."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.app.goals.assemble import assemble
from sparkbuild.app.kinds import kinds
from sparkbuild.core.errors import NodeError
from sparkbuild.core.goal import Goal
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict, closure
from sparkbuild.core.pools import Pools
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.images.docker import reference, sync_goal
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.facts import Observer
from sparkbuild.workspace.load import load
from tests import engine
from tests.engine import ROOT
from tests.rack.image import Image
from tests.rack.node import Node
from tests.rack.rack import Rack

pytestmark = pytest.mark.usefixtures("possible")


@dataclass
class Space:
    """The operator's side: a store with the image assembled in it, and a node that is reached over ssh."""

    nodes: Nodes
    kinds: Any
    node: Node
    folder: Path
    sync: Goal

    def look(self, goal: Goal | None = None) -> Verdict:
        goal = goal or self.sync
        observer = Observer(self.kinds, self.nodes.agent)
        kind: Kind[Any] = self.kinds[goal.uri.scheme]
        return kind.judge(goal, observer.fact(goal), None)

    def apply(self, goal: Goal | None = None, report: Callable[[Progress], None] | None = None) -> int:
        goal = goal or self.sync
        run = Run(root=ROOT, log=self.folder / "log", agent=self.nodes.agent, report=report)
        return int(self.kinds[goal.uri.scheme].apply(goal, self.look(goal), run))

    def why(self, goal: Goal | None = None) -> str:
        verdict = self.look(goal)
        assert verdict.state != OK
        return f"{verdict.state}: " + "; ".join(reason.text for reason in verdict.reasons)

    @property
    def name(self) -> str:
        return reference(self.sync.spec.name, self.sync.key)


def space_of(node: Node, store: Path, folder: Path, goal: Goal) -> Space:
    user, key = node.user, str(node.key_file)
    place = Place("ssh", "/srv/sparkbuild", node.address, user, node.port, key, host_key=node.host_key)
    nodes = Nodes(ROOT, {"local": Place("local", str(store)), node.name: place})
    return Space(nodes, kinds(str(ROOT), nodes, Pools({}), None), node, folder, sync_goal(node.name, goal))


@pytest.fixture(scope="module")
def store(test_cache: Path) -> Path:
    """A store in which images/demo-ranks is assembled."""
    goal = assemble(load(ROOT)).by_task["image:demo-ranks"]
    folder = test_cache / f"demo-ranks-v2-{goal.key.short}"
    with engine._once(folder) as missing:
        if missing:
            nodes = Nodes(ROOT, {"local": Place("local", str(folder))})
            made = kinds(str(ROOT), nodes, Pools({}), None)
            for step in closure([goal]):
                run = Run(root=ROOT, log=folder / "log", agent=nodes.agent)
                made[step.uri.scheme].apply(step, Verdict(RUN), run)
    return folder


@pytest.fixture(scope="module")
def node(possible: None) -> Iterator[Node]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(1) as rack:
        yield rack.nodes[0]


@pytest.fixture
def space(node: Node, store: Path, tmp_path: Path) -> Iterator[Space]:
    """Every test starts without the image."""
    node.docker.start()
    made = space_of(node, store, tmp_path, assemble(load(ROOT)).by_task["image:demo-ranks"])
    node.docker("image", "rm", "--force", made.name, check=False)
    yield made
    made.nodes.close()


def test_it_is_loaded_once_and_runs(space: Space) -> None:
    assert space.why() == "run: not on the node yet"
    seen: list[Progress] = []
    size = space.apply(report=seen.append)
    assert seen[-1].done == seen[-1].total == size > 100_000_000
    verdict = space.look()
    assert (verdict.state, verdict.told.partition(",")[0]) == (OK, "amd64")
    docker = space.node.docker
    run = ["run", "--rm", "--pull=never", "--network", "none", space.name]
    modules = "xllamacpp, ssl, hashlib, ctypes, lzma, bz2, uuid, zlib, json, http.client, argparse, selectors"
    assert docker(*run, "python3.11", "-c", f"import {modules}; print('fine')").out == "fine\n"
    assert docker(*run, "sh", "-c", "id -u; ls /opt/files").out == "0\nranks.py\nserve.py\n"
    assert "--rendezvous-port" in docker(*run, "python3.11", "/opt/files/ranks.py", "--help").out
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", space.name).out)
    assert labels["sparkbuild.key"] == space.sync.key.digest
    assert json.loads(labels["sparkbuild.parts"]) == space.sync.key.parts
    assert labels["sparkbuild.lock"].startswith("demo-ranks@")
    assert docker("ps", "--all", "--quiet").out == "", "the trial container is gone"


def test_what_is_wrong_on_the_node_is_seen_and_mended(space: Space) -> None:
    space.apply()
    docker = space.node.docker
    docker("image", "rm", space.name)
    assert space.why() == "run: not on the node yet"
    other = Image("other:1", files={"/x": b"x"})
    docker.load(other)
    docker("tag", other.tag, space.name)
    assert space.why() == f"run: {space.name} is another image there, without a label of ours"
    space.apply()
    assert space.look().state == OK
    docker("image", "rm", "other:1", check=False)


def test_a_forged_label(space: Space) -> None:
    key = {"sparkbuild.key": space.sync.key.digest}
    for labels, text in (
        ({"sparkbuild.key": "0" * 64}, "is another image there: its key is 000000000000"),
        (key, "has our label, but not the layers that the label lists"),
        ({**key, "sparkbuild.layers": "[]"}, "has our label, but not the layers that the label lists"),
        ({**key, "sparkbuild.layers": own_layers(labels_of=key)}, "has our label, but not the layers that were made"),
    ):
        space.node.docker.load(Image(space.name, files={"/x": b"x"}, labels=labels))
        assert space.why() == f"run: {space.name} {text}"


def own_layers(labels_of: dict[str, str]) -> str:
    """The label that lists the layers of a forged image as they are."""
    with tarfile.open(fileobj=io.BytesIO(Image("x:1", files={"/x": b"x"}, labels=labels_of).tar())) as tar:
        (name,) = (name for name in tar.getnames() if name.endswith(".json") and name != "manifest.json")
        file = tar.extractfile(name)
        assert file is not None
        return json.dumps(json.load(file)["rootfs"]["diff_ids"], separators=(",", ":"))


def test_another_architecture_is_refused(space: Space) -> None:
    spec = msgspec.structs.replace(space.sync.spec, platform="linux/arm64")
    goal = msgspec.structs.replace(space.sync, spec=spec, key=Key({"platform": "linux/arm64"}))
    assert space.why(goal) == f"{UNKNOWN}: image for arm64, node {space.node.name} is amd64"


def test_dockerd_down(space: Space) -> None:
    space.node.dockerd_stop()
    assert space.why().startswith(f"{UNKNOWN}: docker on {space.node.name} cannot be asked: ")
    with pytest.raises(NodeError):
        space.apply()
    space.node.dockerd_start()
    assert space.why().startswith("run: not on the node yet")


def test_a_user_outside_the_docker_group(space: Space, store: Path, tmp_path: Path) -> None:
    space.node.add_user("kim")
    space.node.run(["install", "-d", "-o", "kim", "/srv/kim"], check=True)
    place = msgspec.structs.replace(space.nodes.place(space.node.name), user="kim", store="/srv/kim")
    nodes = Nodes(ROOT, {"local": Place("local", str(store)), space.node.name: place})
    other = Space(nodes, kinds(str(ROOT), nodes, Pools({}), None), space.node, tmp_path, space.sync)
    try:
        assert "user kim may not use docker" in other.why()
        assert "sudo usermod -aG" in other.why()
        assert other.look().state == UNKNOWN
        with pytest.raises(NodeError):
            other.apply()
    finally:
        nodes.close()
