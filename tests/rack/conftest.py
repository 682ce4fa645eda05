"""Fixtures of the rack's own tests.

Where no rack can be, its tests are skipped with the reason; with SPARKBUILD_RACK=1 in the environment, as in CI, that
is an error instead.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine
from tests.rack import engines, needs
from tests.rack.image import Image
from tests.rack.lanes import Lanes, make_store, workspace
from tests.rack.rack import Rack


@pytest.fixture(scope="session")
def possible() -> None:
    """A rack can be brought up here, with the engine that was asked for."""
    _skip_or_fail(needs.lacking())
    if problem := engines.lacking():
        pytest.skip(problem)


@pytest.fixture(scope="session")
def containerd(possible: None) -> str:  # noqa: ARG001 - a fixture for what it does
    """The name of the engine that keeps images in containerd's store, for what only that one does."""
    name = "28-containerd"
    if problem := engines.lacking(name):
        pytest.skip(problem)
    return name


@pytest.fixture(scope="module")
def rack(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """Two nodes with small disks, shared by the tests of a module: each leaves them as it found them."""
    with Rack.up(2, disk_mb=300) as up:
        yield up


@pytest.fixture(scope="module")
def tiny(rack: Rack) -> Image:
    """An image on both nodes."""
    image = Image("tiny:1", files={"/hello.txt": b"hello\n"}, labels={"made.by": "a test"})
    ids = {node.docker.load(image) for node in rack.nodes}
    assert len(ids) == 1, "the same image has the same id on every node"
    return image


@pytest.fixture(scope="session")
def lane_store(possible: None, test_cache: Path) -> Path:  # noqa: ARG001 - a fixture for what it does
    """What demo-2x is made of, on this machine."""
    return make_store(test_cache)


@pytest.fixture(scope="session")
def pair(lane_store: Path) -> Iterator[Rack]:  # noqa: ARG001 - made first: nothing waits for it on a rack that is up
    """Two nodes with docker that all tests of lanes share: to send the image and the weights takes longer than most of
    these tests. `lanes` gives them back their first state.
    """
    with Rack.up(2, disk_mb=1500) as up:
        yield up


@pytest.fixture
def lanes(pair: Rack, lane_store: Path, tmp_path: Path) -> Lanes:
    """A new workspace for demo-2x, and nothing on the nodes but its image and weights, if they got there already."""
    made = workspace(tmp_path / "ws", pair, lane_store)
    made.reset()
    return made


@pytest.fixture(scope="session")
def nas_python(possible: None, test_cache: Path) -> None:  # noqa: ARG001 - as above
    """A NAS can be mounted: its server's library is here, or is installed now."""
    _skip_or_fail(needs.lacking_nas())
    if importlib.util.find_spec("mfusepy"):
        return
    lock = engine.ROOT / "requirements-rack.lock"
    os.environ["SPARKBUILD_RACK_PYTHON"] = str(engine.locked_python("rack", lock, sys.executable, test_cache))


def _skip_or_fail(problem: str) -> None:
    if problem and os.environ.get("SPARKBUILD_RACK"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)
