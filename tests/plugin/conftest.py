"""The demo, served once per run of the tests, and workspaces that start from what it made."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.plugin.demo import Demo, Served, new_demo


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo, served from nothing. Its lane runs on: tests may look at it, and must not change it."""
    demo = new_demo(tmp_path_factory.mktemp("first") / "demo")
    try:
        before = json.loads(demo.ok("plan", "--json", "serve:demo").out)
        done = demo.ok("serve:demo")
        yield Served(demo, before, done, json.loads(demo.ok("plan", "--json", "serve:demo").out))
    finally:
        demo.clean_up()


@pytest.fixture(scope="module")
def workspace(first: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A workspace with everything but the lane made, shared by the tests of a module through `lane` and `idle`."""
    demo = first.demo.copy(tmp_path_factory.mktemp("copy") / "demo")
    try:
        yield demo
    finally:
        demo.clean_up()


@pytest.fixture
def lane(workspace: Demo) -> Demo:
    """The workspace with its files as they were and the demo being served; what a test breaks, the next one mends."""
    workspace.restore()
    workspace.ok("serve:demo")
    return workspace


@pytest.fixture
def idle(workspace: Demo) -> Demo:
    """The workspace with its files as they were, everything made and no lane running."""
    workspace.restore()
    workspace.ok("stop:demo")
    workspace.ok("stage:demo:local:weights", "image:llamacpp")
    return workspace
