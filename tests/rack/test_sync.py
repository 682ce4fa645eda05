"""Images on real nodes: only layers that are missing move, over real wires, into a real docker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.core.errors import NodeError, SpaceError, SparkbuildError
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.core.run import Progress, Run
from sparkbuild.images import loading
from sparkbuild.images.content import BLOBS, describe
from sparkbuild.images.prune import PruneSpec, prune_goal
from sparkbuild.nodes.relay.relay import INCOMING, Blob, Relay
from tests.rack.image import Image
from tests.rack.made import Made, make
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.syncing import QUIET, STORE, Yard, forget, listening, names, received, sent, spool, yard

pytestmark = pytest.mark.usefixtures("possible")
MB = 1_000_000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def three(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(3, disk_mb=600) as rack:
        yield rack


@pytest.fixture
def op(three: Rack, tmp_path: Path) -> Iterator[Yard]:
    """An operator, and nodes with nothing on them."""
    for node in three.nodes:
        node.boot()
        forget(node)
        for name in names(node):
            node.docker("image", "rm", "-f", name, check=False)
    with yard(three, tmp_path) as made:
        yield made
    for node in three.nodes:
        if node.is_on():
            wait_for(f"nobody listens on {node.name}", lambda node=node: listening(node) <= QUIET, 3)


@pytest.fixture
def node(three: Rack) -> Node:
    return three.nodes[0]


@pytest.fixture
def image(op: Yard) -> Made:
    return make(op.store, [("base", 20), ("one", 8)])


def test_a_whole_image(op: Yard, node: Node, image: Made) -> None:
    goal = image.on(node.name)
    assert op.why(goal) == "run: not on the node yet"
    verdict = op.look(goal)
    assert verdict.bytes == image.bytes, verdict
    assert op.sync(goal) == image.bytes
    assert names(node) == {image.reference}, "no other name is left"
    assert spool(node) == []
    assert op.look(goal).bytes == 0


def test_only_the_changed_layer_moves(op: Yard, node: Node, image: Made) -> None:
    op.sync(image.on(node.name))
    changed = make(op.store, [("base", 20), ("two", 12)])
    verdict = op.look(changed.on(node.name))
    assert verdict.bytes == changed.sizes[2]
    assert [reason.text for reason in verdict.reasons][1:] == ["1 of 3 layers are missing there"]
    before = received(node)
    assert op.sync(changed.on(node.name)) == changed.sizes[2]
    assert changed.sizes[2] <= received(node) - before <= 1.02 * changed.sizes[2] + 200_000
    assert names(node) == {image.reference, changed.reference}


def test_layers_that_came_by_a_load_do_not_move_either(op: Yard, node: Node) -> None:
    """Docker knows no name of such a layer that a registry could offer."""
    image = make(op.store, [("loaded", 20), ("with it", 8)])
    archive = b"".join(_archive(op, image))
    node.run(["docker", "load", "--quiet"], text=archive, timeout=60, check=True)
    assert op.look(image.on(node.name)).state == OK
    changed = make(op.store, [("loaded", 20), ("two", 12)])
    before = received(node)
    assert op.sync(changed.on(node.name)) == changed.sizes[2]
    assert received(node) - before <= 1.02 * changed.sizes[2] + 200_000
    assert node.docker.is_containerd or "loading the others" in op.log, "containerd's store names them as we do"


def _archive(op: Yard, image: Made) -> Iterator[bytes]:
    content, _ = describe(op.nodes.agent("local"), "made", image.goal.key)
    run = Run(root=op.folder, log=op.folder / "x", agent=op.nodes.agent)
    yield from loading._archive(content, str(op.store / BLOBS), image.reference, image.bytes, run)


def test_another_name_for_all_of_the_layers_moves_nothing(op: Yard, node: Node, image: Made) -> None:
    op.sync(image.on(node.name))
    again = make(op.store, [("base", 20), ("one", 8)], salt="another key")
    assert op.look(again.on(node.name)).bytes == 0
    before = received(node)
    assert op.sync(again.on(node.name)) == 0
    assert received(node) - before < 200_000


def test_three_nodes_at_once_are_sent_it_once(three: Rack, op: Yard) -> None:
    image = make(op.store, [("base", 20), ("one", 8)])
    before = [(received(node), sent(node)) for node in three.nodes]
    for node in three.nodes:
        node.rate(30)  # so that the last has joined before the first has all of it, however busy this machine is
    try:
        assert op.sync_all([image.on(node.name) for node in three.nodes]) == [image.bytes] * 3
    finally:
        for node in three.nodes:
            node.rate(None)
    came = [received(node) - start for node, (start, _) in zip(three.nodes, before, strict=True)]
    went = [sent(node) - start for node, (_, start) in zip(three.nodes, before, strict=True)]
    assert all(image.bytes <= count <= 1.1 * image.bytes for count in came)
    # most often a chain of three; on a busy machine the second may join so late that the first feeds both others
    assert min(went) < image.bytes < max(went), "the last passes nothing on"
    assert 2 * image.bytes < sum(went) < 2.2 * image.bytes, "this machine has sent it once"
    assert all(spool(node) == [] for node in three.nodes)


def test_from_a_node_to_the_others(three: Rack, op: Yard) -> None:
    """The holder is a node: nothing goes over this machine."""
    holder, *others = three.nodes
    image = make(holder.path(STORE), [("base", 20), ("one", 8)], holder=holder.name)
    goals = [image.on(node.name) for node in others]
    assert op.look(goals[0]).bytes is None, "what it is made of is known there"
    before, gone = Path(f"/sys/class/net/{three.switch.link}/statistics/rx_bytes").read_text(), sent(holder)
    assert op.sync_all(goals) == [image.bytes] * 2, op.log
    after = Path(f"/sys/class/net/{three.switch.link}/statistics/rx_bytes").read_text()
    assert int(after) - int(before) < 500_000
    assert sent(holder) - gone < 1.2 * image.bytes
    assert op.sync(image.on(holder.name)) == image.bytes, "its own docker gets it too"


def test_a_link_that_is_cut_in_the_middle(op: Yard, node: Node) -> None:
    image = make(op.store, [("base", 20), ("one", 20)])

    def cut(progress: Progress) -> None:
        if progress.phase == "receive" and progress.done > 24 * MB:
            node.cut()

    node.rate(200)
    try:
        with pytest.raises(NodeError):
            op.sync(image.on(node.name), cut)
    finally:
        node.heal()
        node.rate(None)
    op.nodes.close()
    verdict = op.look(image.on(node.name))
    assert verdict.bytes is not None
    assert verdict.bytes < image.bytes - 20 * MB, "what has arrived is kept"
    assert "have arrived already" in op.why(image.on(node.name))
    before = received(node)
    assert op.sync(image.on(node.name)) <= verdict.bytes
    assert received(node) - before < verdict.bytes + 2 * MB


@pytest.mark.long
def test_a_node_that_passes_on_fails_and_the_next_goes_on(three: Rack, op: Yard) -> None:
    first, second, _ = three.nodes
    image = make(op.store, [("base", 20), ("one", 20)])
    failures: list[BaseException] = []
    arrived = threading.Event()

    def tell_when_some_arrived(said: Progress) -> None:
        if said.phase == "receive" and said.done > 10 * MB:
            arrived.set()

    def end_the_giver(said: Progress) -> None:
        if said.phase == "receive" and said.done > 5 * MB and first.is_on():
            first.kill()

    def sync_first() -> None:
        try:
            op.sync(image.on(first.name), tell_when_some_arrived)
        except SparkbuildError as error:
            failures.append(error)

    for node in (first, second):
        node.rate(20)  # slow enough for the second to begin in the middle of the first on a busy machine
    thread = threading.Thread(target=sync_first, daemon=True)
    try:
        thread.start()
        assert arrived.wait(30)
        assert op.sync(image.on(second.name), end_the_giver) == image.bytes
        assert f"{second.name} receives from {first.name}, then local" in op.log
        thread.join(60)
        assert isinstance(failures[0], NodeError)
    finally:
        second.rate(None)
        first.kill()
        first.boot()


def test_the_power_fails_while_docker_takes_it(op: Yard, node: Node, image: Made) -> None:
    def fail(progress: Progress) -> None:
        if progress.phase == "docker" and node.is_on():
            node.kill()

    with pytest.raises((NodeError, AssertionError)):
        op.sync(image.on(node.name), fail)
    node.kill()
    node.boot()
    op.nodes.close()
    assert op.why(image.on(node.name)).startswith("run: ")
    assert op.sync(image.on(node.name)) <= image.bytes
    assert names(node) == {image.reference}, "the names of the pull that was broken off are gone"


def test_a_layer_that_lost_its_content_is_fetched_again(op: Yard, node: Node, image: Made) -> None:
    folder = node.path(f"{STORE}/incoming")
    folder.mkdir(parents=True)
    (folder / image.diff_ids[1][7:]).write_bytes(bytes(image.sizes[1]))
    (folder / f"{image.diff_ids[2][7:]}.part").write_bytes(bytes(1000))
    op.sync(image.on(node.name))
    assert "is not what was received: removed" in op.log


def test_dockerd_is_started_anew_in_the_middle(op: Yard, node: Node, image: Made) -> None:
    once = threading.Event()

    def restart() -> None:
        node.dockerd_stop(9)
        time.sleep(0.5)
        node.dockerd_start()

    threads = []

    def said(progress: Progress) -> None:
        if progress.phase == "receive" and progress.done > 5 * MB and not once.is_set():
            once.set()
            threads.append(threading.Thread(target=restart, daemon=True))
            threads[0].start()

    node.rate(100)
    try:
        op.sync(image.on(node.name), said)
    finally:
        node.rate(None)
        for thread in threads:
            thread.join(30)
    assert once.is_set()
    assert names(node) == {image.reference}


def test_no_room(op: Yard, node: Node, image: Made) -> None:
    node.fill_disk(int(image.bytes * 1.1))
    try:
        with pytest.raises(SpaceError, match=f"docker's disk on {node.name} has no room") as caught:
            op.sync(image.on(node.name))
        assert f"{2 if node.docker.is_containerd else 1.2} times what is missing" in caught.value.wanted
        assert op.why(image.on(node.name)) == "run: not on the node yet"
    finally:
        node.free_disk()


def test_the_disk_fills_in_the_middle(op: Yard, node: Node, image: Made) -> None:
    def fill(progress: Progress) -> None:
        if progress.phase == "receive" and progress.done > 5 * MB and not node.path("/var/filler").exists():
            node.fill_disk(2 * MB)

    node.rate(100)
    try:
        with pytest.raises(SpaceError):
            op.sync(image.on(node.name), fill)
        assert not names(node)
    finally:
        node.rate(None)
        node.free_disk()
    op.sync(image.on(node.name))


def test_the_same_name_with_other_content(op: Yard, node: Node, image: Made) -> None:
    other = Image(image.reference, files={"/x": b"x"}, labels={"sparkbuild.key": image.goal.key.digest})
    node.docker.load(other)
    assert "has our label, but not the layers that the label lists" in op.why(image.on(node.name))
    op.sync(image.on(node.name))
    assert op.look(image.on(node.name)).state == OK


def test_another_architecture(op: Yard, node: Node) -> None:
    foreign = make(op.store, [("base", 1)], architecture="arm64")
    verdict = op.look(foreign.on(node.name))
    assert verdict.state == UNKNOWN
    assert verdict.reasons[0].text.startswith(f"image for arm64, node {node.name} is ")


def test_two_operators_at_once(three: Rack, op: Yard, node: Node, image: Made, tmp_path: Path) -> None:
    with yard(three, tmp_path / "other") as other:
        same = make(other.store, [("base", 20), ("one", 8)])
        before = received(node)
        with_ = [threading.Thread(target=one.sync, args=(goal.on(node.name),)) for one, goal in
                 ((op, image), (other, same))]  # fmt: skip
        node.rate(200)
        try:
            for thread in with_:
                thread.start()
            for thread in with_:
                thread.join(60)
        finally:
            node.rate(None)
        assert op.look(image.on(node.name)).state == OK
        assert received(node) - before < 1.3 * image.bytes, "the second does not send it again"
    assert names(node) == {image.reference}


def test_where_nothing_may_be_forwarded(op: Yard, node: Node, image: Made) -> None:
    config = node.path("/etc/ssh/sshd_config")
    before = config.read_text()
    config.write_text(f"AllowTcpForwarding no\n{before}")
    node.run(["sh", "-c", 'kill -HUP "$(cat /run/sshd.pid)"'], check=True)
    wait_for("sshd answers", node._banner)
    try:
        assert op.sync(image.on(node.name)) == image.bytes
        assert spool(node) == []
    finally:
        config.write_text(before)
        node.run(["sh", "-c", 'kill -HUP "$(cat /run/sshd.pid)"'], check=True)
        wait_for("sshd answers", node._banner)


def test_a_store_on_a_small_disk(op: Yard, node: Node, image: Made) -> None:
    """Layers cannot arrive there: docker loads the image over the connection."""
    node.run(["mkdir", "-p", STORE], check=True)
    op.look(image.on(node.name))  # the agent is there
    node.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", f"{STORE}"], check=True)
    try:
        assert op.sync(image.on(node.name)) == image.bytes
    finally:
        op.nodes.close()
        node.run(["umount", "-l", STORE], check=True)


@pytest.mark.long
def test_of_a_big_image_the_lower_layers_stay_when_the_rest_is_broken_off(op: Yard, node: Node) -> None:
    image = make(op.store, [("deep", 12), ("deeper", 12), ("top", 12)])
    content, _ = describe(op.nodes.agent("local"), "made", image.goal.key)
    blobs = [Blob(diff_id[7:], size) for diff_id, size in zip(image.diff_ids, image.sizes, strict=True)]
    relay = Relay(op.nodes, "local", BLOBS, blobs)

    class BreakOffError(Exception):
        pass

    def pull(until: str) -> list[str]:
        said: list[str] = []

        def event(event: dict[str, Any]) -> None:
            said.append(str(event.get("text", "")))
            if until and until in said[-1]:
                raise BreakOffError

        with relay.carry(node.name, blobs, print, print) as arrival:
            arrival.wait()
            layers = msgspec.to_builtins(content.layers)
            request = {
                "folder": INCOMING, "reference": image.reference, "key": image.goal.key.digest, "big": 8 * MB,
                "architecture": content.architecture, "config": content.config, "layers": layers,
                "arriving": [blob.sha256 for blob in blobs], "token": arrival.token, "sources": arrival.sources,
            }  # fmt: skip
            op.nodes.agent(node.name).call("pull", request, event)
        return said

    deep = image.diff_ids[1][7:19]
    with pytest.raises(BreakOffError):
        pull("docker keeps the lowest 2 layers")
    assert any(":p2" in name for name in names(node))
    assert op.look(image.on(node.name)).bytes == 0, "two layers are missing, and have arrived"
    assert not any(f"{deep} {what} complete" in text for text in pull("") for what in ("Download", "Pull"))
    relay.close()
    assert names(node) == {image.reference}


def test_prune(op: Yard, node: Node) -> None:
    images = [make(op.store, [("base", 20), (f"number {number}", 1)]) for number in range(4)]
    for image in images:
        op.sync(image.on(node.name))
        if image is images[0]:
            node.docker("tag", image.reference, "mine:1")
    used = node.docker("create", "--name", "user", images[1].reference, "true").out.strip()
    goal = prune_goal(node.name, PruneSpec(2, (images[3].reference,)))
    assert op.why(goal).startswith(f"run: removes {images[0].reference}, ")
    assert images[1].reference not in op.why(goal), "a container uses it"
    assert op.sync(goal) == 0
    assert op.look(goal).told == f"{images[1].reference} is used by user"
    assert names(node) == {"mine:1", *(image.reference for image in images[1:])}
    node.docker("rm", used)
    assert op.look(prune_goal(node.name, PruneSpec(1, (images[1].reference,)))).state == RUN, "3 and 2 go"
    moved = prune_goal(node.name, PruneSpec(2))  # the image is wanted here no more
    assert op.why(moved).startswith(f"run: removes {images[1].reference}, ")
    assert images[2].reference not in op.why(moved)
    assert op.why(goal).startswith(f"run: removes {images[1].reference}, ")
    assert op.look(prune_goal(node.name, PruneSpec(3, (images[3].reference,)))).state == OK
    node.docker("image", "rm", "mine:1")


DRIVER = """
import sys
from pathlib import Path
from sparkbuild.core.interrupt import handling
from tests.rack.made import make
from tests.rack.rack import Rack
from tests.rack.syncing import yard
rack, folder = Rack.attach(Path(sys.argv[1])), Path(sys.argv[2])
with handling(), yard(rack, folder) as op:
    image = make(op.store, [("base", 20), ("one", 8)])
    op.sync_all([image.on(node.name) for node in rack.nodes[:2]])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_the_operator_is_gone_in_the_middle(
    three: Rack, op: Yard, image: Made, tmp_path: Path, number: signal.Signals
) -> None:
    for node in three.nodes[:2]:
        node.rate(60)
    argv = [sys.executable, "-c", DRIVER, str(three.folder), str(tmp_path / "gone")]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for("something arrives on both", lambda: all(spool(node) for node in three.nodes[:2]), 30)
        time.sleep(1.0)
        process.send_signal(number)
        process.communicate(timeout=30)
        for node in three.nodes[:2]:
            wait_for(f"nobody listens on {node.name}", lambda node=node: listening(node) <= QUIET, 20)
            assert node.run(["pgrep", "-f", "sparkbuild.agent"]).out == ""
    finally:
        process.kill()
        for node in three.nodes[:2]:
            node.rate(None)
    goals = [image.on(node.name) for node in three.nodes[:2]]
    assert all((op.look(goal).bytes or 0) < image.bytes - MB for goal in goals), "what has arrived is kept"
    op.sync_all(goals)
    assert names(three.nodes[0]) == {image.reference}
