"""A launch that must fail ends no lane that serves: what docker would refuse is known before, by plan and by serve."""

from __future__ import annotations

import pytest

from tests.rack.lanes import RECIPE, Lanes, box, is_running, record
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible")
TASK = f"serve:{RECIPE}"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("gpus = true", "gives no container a GPU"),
        ('capabilities = ["IPC_LOK"]', "did you mean `IPC_LOCK`?"),
        ("memory = 1000", "at least 6291456 bytes"),
    ],
)
def test_what_docker_would_refuse(lanes: Lanes, lines: str, says: str) -> None:
    lanes.sleeping()
    lanes.ok(TASK)
    before = [box(node)["Id"] for node in lanes.nodes]
    lanes.edit("memory = 2_000_000_000", lines)
    told = lanes("plan", TASK)
    assert says in told.text, told
    assert "make it so" not in told.text, told
    assert says in lanes.fails(TASK).text
    assert [box(node)["Id"] for node in lanes.nodes] == before
    assert all(is_running(node) for node in lanes.nodes)


def test_an_interface_that_no_node_has(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.ok(TASK)
    before = [box(node)["Id"] for node in lanes.nodes]
    lanes.serve_with('env = { GLOO_SOCKET_IFNAME = "enp1s0f9" }')
    assert "no network interface is what GLOO_SOCKET_IFNAME says" in lanes("plan", TASK).text
    assert "no network interface is what GLOO_SOCKET_IFNAME says" in lanes.fails(TASK).text
    assert [box(node)["Id"] for node in lanes.nodes] == before


def test_an_engine_that_listens_for_its_own_node_alone(lanes: Lanes) -> None:
    lanes.bad(host="127.0.0.1")
    done = lanes.fails(TASK, timeout=90)  # its ready_timeout is 180
    assert f"it listens on 127.0.0.1 port {8432} alone, which no other machine reaches" in done.text
    assert '"--host", "{{ host }}"' in done.text
    assert "it is left running" in done.text
    assert record(lanes.nodes[0])["ready"] is None


def test_a_container_that_is_out_of_memory_says_so(lanes: Lanes) -> None:
    lanes.bad("--do", "503", "--exit-after", "1", "--eat", "4000")
    done = lanes.fails(TASK)
    assert "out of memory: the kernel killed it at the limit of its container" in done.text
    until(lambda: not lanes.left(), 10)
