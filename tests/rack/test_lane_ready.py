"""From launched to served: what is waited for, what ends while it starts or later, and what is said then."""

from __future__ import annotations

import pytest

from tests.rack.lanes import NAME, RECIPE, Lanes, box, is_running, names, record, shell
from tests.workspace_tool import finish, until

pytestmark = pytest.mark.usefixtures("possible")
TASK = f"serve:{RECIPE}"


def test_not_waited_for_and_then_gone_on_with(lanes: Lanes) -> None:
    done = lanes.ok(TASK, "--no-wait")
    assert f"launched on dgx1, dgx2, not waited for: doit {TASK}" in done.out
    assert "another run had made it" not in done.out
    launch = record(lanes.nodes[0])["launch"]
    assert lanes.state() == "run"
    until(lanes.answers, 30)
    assert lanes.serve()["state"] == "serving"
    assert record(lanes.nodes[0])["launch"] == launch, "it was not launched anew"


def test_a_recipe_that_is_not_waited_for(lanes: Lanes) -> None:
    lanes.sleeping()
    assert "not waited for" in lanes.ok(TASK).out
    launch = record(lanes.nodes[0])["launch"]
    assert lanes.row()["state"] == "starting"
    assert "not waited for" in lanes.ok(TASK).out, "as long as it does not answer"
    assert record(lanes.nodes[0])["launch"] == launch
    assert lanes.state() == "run"


def test_one_that_is_not_ready_in_time_is_left_running(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit("wait = false\n", "")
    lanes.edit("ready_timeout = 180.0", "ready_timeout = 2.0")
    done = lanes.fails(TASK)
    assert f"lane {RECIPE} was not ready after 2 s; it is left running" in done.text
    assert f"doit serve:{RECIPE} goes on waiting" in done.text
    assert len(lanes.left()) == 2
    launch = record(lanes.nodes[0])["launch"]
    assert "was not ready after 2 s" in lanes.fails(TASK).text
    assert record(lanes.nodes[0])["launch"] == launch


def test_a_rank_that_ends_while_it_starts_ends_the_lane(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit("wait = false\n", "")
    process = lanes.start_and_wait("watched")
    until(lambda: "1 | 1" in lanes.log())
    lanes.nodes[1].docker("kill", NAME)
    done = finish(process, 60)
    assert done.code == 1, done
    assert f"lane {RECIPE}: rank 1 ended before it was ready" in done.out
    assert "rank 1 on dgx2 (Exited (137)" in done.out
    assert "        1\n" in done.out, "the last lines of its log"
    assert f"doit logs {RECIPE}" in done.out
    assert lanes.left() == []
    assert lanes.row()["state"] == "did not start"


def test_a_rank_that_cannot_start_is_heard(lanes: Lanes) -> None:
    """Its port is taken: ranks.py says so and ends; the other rank waits for it in vain and is taken down."""
    node = lanes.nodes[0]
    serve = 'echo $$ >/run/port.pid; exec python3 -m http.server 29532 --bind "$1" >/dev/null 2>&1'
    node.run(["setsid", "--fork", "sh", "-c", serve, "sh", node.address], check=True)
    try:
        shell(node, "until ss -Hltn | grep -q :29532; do sleep 0.1; done")
        done = lanes.fails(TASK)
    finally:
        shell(node, "kill $(cat /run/port.pid)")
    assert f"cannot listen on {node.address} port 29532: Address already in use" in done.out
    assert "rank 0 on dgx1 (Exited (3)" in done.out
    assert lanes.left() == []


def test_a_program_that_is_not_in_the_image(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit('command = ["{{ image.python }}"', 'command = ["/no/such/program"')
    lanes.edit("[serve.docker]\n", "[serve.docker]\ninit = false\n")
    done = lanes.fails(TASK)
    assert "docker refuses" in done.text
    assert "/no/such/program" in done.text
    assert lanes.left() == []
    assert names(lanes.nodes[0]) == []


def test_a_rank_that_dies_later_breaks_the_lane_and_serve_makes_it_anew(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.ok(TASK)
    head, worker = lanes.nodes
    before = box(head)["Id"]
    worker.docker("kill", NAME)
    assert lanes.row()["state"] == "broken (rank 1 on dgx2 does not run)"
    assert any("rank 1 on dgx2: container" in reason for reason in lanes.reasons())
    lanes.ok(TASK)
    assert [is_running(node) for node in lanes.nodes] == [True, True]
    assert box(head)["Id"] != before
    assert record(head)["launch"] == record(worker)["launch"]


def test_a_lane_that_lost_a_rank_ends_and_serve_makes_it_anew(lanes: Lanes) -> None:
    lanes.serve()
    head, worker = lanes.nodes
    worker.docker("kill", NAME)
    until(lambda: not is_running(head), 20)
    assert lanes.row()["state"] == "dead (was not stopped)"
    (reason, *_) = lanes.reasons()
    assert "gone without having been stopped" in reason
    assert "lost rank 1" in reason
    assert lanes.serve()["state"] == "serving"
    assert lanes.answers()


def test_gates_that_fail_leave_it_running_and_not_served(lanes: Lanes) -> None:
    lanes.edit('expect = "4"', 'expect = "five"')
    done = lanes.fails(TASK)
    assert "arithmetic" in done.text
    assert lanes.row()["state"] == "serving, gates not passed"
    launch = record(lanes.nodes[0])["launch"]
    lanes.edit('expect = "five"', 'expect = "4"')
    assert lanes.serve()["state"] == "serving"
    assert record(lanes.nodes[0])["launch"] == launch, "gates are asked again, nothing is launched"
