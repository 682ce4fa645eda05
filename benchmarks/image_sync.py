"""What it costs to bring a docker image to nodes, beside the usual ways (see image_ways). Needs root.

    .venv/bin/python benchmarks/image_sync.py [--mb 256] [--layers 6] [--rate 400] [--nodes 4] [--only-in-sync]

Brings up a rack (tests/rack: real sshd and dockerd in namespaces of this machine) of four nodes. The first has the
image, in its docker and as blobs in its store; to the others it goes, each way into a docker that has none of it:

  whole    all layers to one node
  changed  another image with one layer changed, to a node that has the first
  three    all layers to three nodes at once, every node's network limited to --rate Mbit/s in each direction
  in sync  the look at three nodes that have it, beside a look at them that asks nothing
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from image_ways import Way, ways  # noqa: E402 - after what it needs on the path
from needs import options  # noqa: E402 - as above

from sparkbuild.nodes.ask import survey  # noqa: E402 - as above
from sparkbuild.nodes.facts import Observer  # noqa: E402 - the repository is on the path now
from tests.rack.made import Made, make  # noqa: E402 - as above
from tests.rack.node import Node  # noqa: E402 - as above
from tests.rack.rack import Rack  # noqa: E402 - as above
from tests.rack.syncing import STORE, Yard, forget, received, sent, yard  # noqa: E402 - as above


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def into_docker(op: Yard, holder: Node, image: Made) -> None:
    """The holder's own docker has it, as after a build."""
    op.sync(image.on(holder.name))


def whole(op: Yard, ways: Mapping[str, Way], holder: Node, node: Node, image: Made) -> None:
    """To one node, by every way."""
    forget(node, image)
    before = received(node)
    ours = timed(lambda: op.sync(image.on(node.name)))
    print(f"whole image, one node: {ours:.1f} s, received {(received(node) - before) / image.bytes:.3f} x its bytes")
    _beside(ours, ways, holder, node, image)


def changed(op: Yard, ways: Mapping[str, Way], holder: Node, node: Node, other: Made) -> None:
    """The node has an image from which `other` differs in its last layer."""
    verdict = op.look(other.on(node.name))
    before, size = received(node), other.sizes[-1]
    ours = timed(lambda: op.sync(other.on(node.name)))
    came = received(node) - before
    planned = verdict.bytes if verdict.bytes is not None else "unknown"
    print(
        f"one changed layer of {size} bytes: {ours:.1f} s, planned {planned} bytes, received {came / size:.3f} x the"
        " layer's"
    )
    _beside(ours, ways, holder, node, other)


def _beside(ours: float, ways: Mapping[str, Way], holder: Node, node: Node, image: Made) -> None:
    """The same by the usual ways, each into a docker that has not got it."""
    for name, way in ways.items():
        forget(node, image)
        before = received(node)
        usual = timed(lambda way=way: way(holder, node, image))  # type: ignore[misc] # bound now
        came = received(node) - before
        print(f"    {name}: {usual:.1f} s, ratio {ours / usual:.2f}; {came / 1e6:.0f} MB", flush=True)


def three(op: Yard, nodes: Sequence[Node], image: Made, other: Made, *, rate: float) -> None:
    """With every wire limited: to one, then to all others. Nobody but the first has any of it."""
    holder, *others = nodes
    for node in others:
        forget(node, image, other)
    for node in nodes:
        node.rate(rate)
    try:
        one = timed(lambda: op.sync(image.on(others[0].name)))
        forget(others[0], image)
        before = sent(holder)
        every = timed(lambda: op.sync_all([image.on(node.name) for node in others]))
        out = sent(holder) - before
    finally:
        for node in nodes:
            node.rate(None)
    print(
        f"{len(others)} nodes at {rate:g} Mbit/s: {every:.1f} s, one node {one:.1f} s: ratio {every / one:.2f};"
        f" the sender's bytes {out / image.bytes:.3f} x the image"
    )


def in_sync(op: Yard, nodes: Sequence[Node], image: Made) -> None:
    """Nothing to do."""
    goals = [image.on(node.name) for node in nodes]
    nothing = {node.name: {"scheme": "network"} for node in nodes}
    looks = [timed(lambda: Observer(op.kinds, op.nodes.agent).look(goals)) for _ in range(10)]
    trips = [timed(lambda: survey(op.nodes.agent, nothing)) for _ in range(10)]
    print(
        f"in sync, {len(nodes)} nodes: {min(looks) * 1e3:.0f} ms, a round trip of facts {min(trips) * 1e3:.0f} ms:"
        f" ratio {min(looks) / min(trips):.2f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rate", type=float, default=400)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--only-in-sync", action="store_true")
    given = options(parser, {"mb": 1, "layers": 2, "nodes": 3}, rack=True)
    layers = [(f"layer {number}", given.mb) for number in range(given.layers)]
    with Rack.up(given.nodes) as rack, tempfile.TemporaryDirectory(prefix="sparkbuild-bench.") as folder:
        holder, node, *_ = rack.nodes
        with yard(rack, Path(folder)) as op:
            store = holder.path(STORE)
            image = make(store, layers, holder=holder.name)
            other = make(store, [*layers[:-1], ("changed", given.mb)], holder=holder.name)
            size = image.bytes / 1e6
            print(
                f"an image of {size:.0f} MB in {given.layers + 1} layers, {os.cpu_count()} cores for all nodes",
                flush=True,
            )
            for one in (image, other):
                into_docker(op, holder, one)
            if given.only_in_sync:
                for each in rack.nodes[1:]:
                    into_docker(op, each, image)
                in_sync(op, rack.nodes, image)
                return
            with ways(holder, [node]) as usual:
                whole(op, usual, holder, node, image)
                changed(op, usual, holder, node, other)
            three(op, rack.nodes, image, other, rate=given.rate)
            in_sync(op, rack.nodes[1:], image)


if __name__ == "__main__":
    main()
