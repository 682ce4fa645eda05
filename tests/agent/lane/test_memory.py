"""What a lane holds of its node's memory, measured on real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.lane import memory
from sparkbuild.agent.lane.memory import held, of_gpu_rows
from tests.agent.lane.test_launch_stop import Node
from tests.engine import free_port
from tests.workspace_tool import until

MIB = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    here = Node(tmp_path, free_port())
    yield here
    here.clean()


def test_of_processes(node: Node) -> None:
    code = "import time; held = b'1' * (100 << 20); print('eaten', flush=True); time.sleep(60)"
    answer = node.launch(argv=[sys.executable, "-c", code], port=0)
    until(lambda: "eaten" in node.log(answer.last["record"]))
    assert 100 * MIB < held(str(node.store), "demo", "/nowhere") < 150 * MIB
    node.stop()
    assert held(str(node.store), "demo", "/nowhere") == 0


def test_of_a_lane_that_never_ran(tmp_path: Path) -> None:
    assert held(str(tmp_path), "demo", "/nowhere") == 0


def test_of_a_control_group(tmp_path: Path) -> None:
    """What docker puts a container into; the pages of files are available already."""
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 300\nactive_file 100\n")
    assert memory._of_group(str(tmp_path)) == 600
    group = memory._group(os.getpid())
    assert group == "" or memory._of_group(group) >= 0
    assert memory._group(0) == ""


def test_of_a_gpu() -> None:
    rows = "12, 100\n13, 50\n14, [N/A]\nno row\n"
    assert of_gpu_rows(rows, {12, 14, 99}) == 100 * MIB
    assert of_gpu_rows("", {12}) == 0
