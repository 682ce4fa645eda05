"""Ways between nodes of this machine; those between real machines are proven on the rack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.relay.reach import Ways

PORTS = {"127.0.0.1": 4000}


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[Ways]:
    far = Place("ssh", "/srv/x", address="127.0.0.1", port=1, user="nobody")
    made = Ways(Nodes(tmp_path, {"a": Place("local", "a"), "b": Place("local", "b"), "far": far}))
    yield made
    made.close()


def test_nodes_of_this_machine(ways: Ways) -> None:
    assert ways.is_here("a")
    assert ways.listen("a") == ["127.0.0.1"]
    assert ways.sources("a", PORTS, "b") == [{"host": "127.0.0.1", "port": 4000}]
    assert not ways.feeds_all("a", "b", 1)


def test_a_node_and_itself(ways: Ways) -> None:
    assert ways.sources("far", PORTS, "far") == [{"host": "127.0.0.1", "port": 4000}]


def test_a_node_that_does_not_answer(ways: Ways) -> None:
    assert not ways.is_here("far")
    with pytest.raises(NodeError, match="far does not answer"):
        ways.listen("far")
    with pytest.raises(NodeError):
        ways.sources("a", PORTS, "far")
    with pytest.raises(NodeError):
        ways.sources("far", PORTS, "a")
