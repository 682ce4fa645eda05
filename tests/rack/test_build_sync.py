"""An image that was built on one node goes to the others of a recipe, as one that was assembled does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rack.building import STORE, Yard
from tests.rack.rack import Rack
from tests.workspace.helpers import put

pytestmark = pytest.mark.usefixtures("possible")
RECIPE = 'cluster = "pair"\nimage = "tiny"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'


@pytest.fixture(scope="module")
def rack(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(2) as up:
        yield up


def test_from_its_build_node_to_the_other(rack: Rack, tmp_path: Path) -> None:
    first, second = rack.nodes
    yard = Yard(tmp_path / "ws", first)
    text = (yard.root / "config.toml").read_text()
    other = text.replace(first.name, second.name).replace(first.address, second.address)
    other = other.replace(first.host_key, second.host_key)
    put(yard.root, "config.toml", f'{text}\n{other}\n[clusters.pair]\nnodes = ["{first.name}", "{second.name}"]\n')
    put(yard.root, "recipes/r/recipe.toml", RECIPE)
    told = yard.ok("sync:tiny").out
    assert f"sync:tiny:{first.name}" in told
    assert "nothing to do: it came with image:tiny" in told
    assert "another run had made it" not in told
    reference = yard.receipt()["reference"]
    layers = [
        node.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", reference).out for node in rack.nodes
    ]
    assert layers[0] == layers[1]
    run = second.docker("run", "--rm", "--pull", "never", "--network", "none", reference, "/hello.sh")
    assert run.out == "hello from 1.2\n"
    assert "sparkbuild/base" not in second.docker("images").out, "its layers are there, the base as such is not needed"
    assert set(yard.states("sync:tiny").values()) == {"ok"}
    (yard.root / "images/tiny/hello.sh").write_text("#!/bin/sh\necho hello again\n")
    plan = yard.plan("sync:tiny")
    there = f"sync:tiny:{second.name}"
    assert (plan["image:tiny"]["state"], plan["image:tiny"]["bytes"]) == ("run", None)
    assert plan[there]["bytes"] is None, "one small layer is new, and nobody knows that before it is built"
    before = yard.receipt()
    yard.ok("image:tiny")
    new = yard.receipt()
    lacks = sum(size for layer, size in zip(new["layers"], new["sizes"], strict=True) if layer not in before["layers"])
    assert yard.plan("sync:tiny")[there]["bytes"] == lacks
    yard.ok("sync:tiny")
    assert [entry["bytes"] for entry in yard.runs() if entry.get("event") == "made" and entry["task"] == there][
        -1
    ] == lacks
    assert (
        second.docker("run", "--rm", "--pull", "never", yard.receipt()["reference"], "/hello.sh").out == "hello again\n"
    )
    assert yard.node.path(f"{STORE}/blobs/sha256").is_dir()
