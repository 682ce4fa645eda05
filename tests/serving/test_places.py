"""Where lanes were launched, and what is said of nodes that they do not have any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbuild.serving import places
from sparkbuild.serving.launch.elsewhere import Elsewhere, text_of_gone
from sparkbuild.serving.ranks import Seen
from tests.serving.lanes import goal

Fact = dict[str, Any]


def test_noted_and_forgotten(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert places.noted(root) == {}
    places.note(root, "demo", ("dgx2", "dgx1"))
    places.note(root, "demo", ("dgx1",))
    places.note(root, "glm", ("dgx3",))
    assert places.noted(root) == {"demo": ("dgx1", "dgx2"), "glm": ("dgx3",)}
    places.forget(root, "demo", ("dgx1", "dgx7"))
    assert places.nodes_of(root, "demo") == ("dgx2",)
    places.forget(root, "demo", ("dgx2",))
    places.forget(root, "never", ("dgx2",))
    assert places.noted(root) == {"glm": ("dgx3",)}


def seen(*, alive: bool, nodes: tuple[str, ...] | None) -> Seen:
    record = {"parts": {"nodes": list(nodes)} if nodes else {}}
    return Seen(0, "dgx1", {"record": record, "alive": alive})


@pytest.mark.parametrize(
    ("noted", "one", "expected"),
    [
        ((), seen(alive=True, nodes=("dgx1", "dgx2")), ()),
        ((), seen(alive=True, nodes=("dgx1", "dgx3")), ("dgx3",)),
        ((), seen(alive=False, nodes=("dgx1", "dgx3")), ()),
        ((), seen(alive=True, nodes=None), ()),
        (("dgx1", "dgx3"), seen(alive=False, nodes=None), ("dgx3",)),
        (("dgx3",), seen(alive=True, nodes=("dgx4", "dgx3")), ("dgx3", "dgx4")),
    ],
)
def test_nodes_that_a_lane_has_no_more(
    tmp_path: Path, noted: tuple[str, ...], one: Seen, expected: tuple[str, ...]
) -> None:
    places.note(str(tmp_path), "demo", noted)
    assert places.elsewhere(goal(), [one], str(tmp_path)) == expected


WHERE = "dgx3, which lane demo was launched on and its cluster pair has no more,"
NOTHING: Fact = {"alive": False, "record": None}
RUNS: Fact = {"alive": True, "record": {"protect": False}}


@pytest.mark.parametrize(
    ("fact", "protect", "runs", "refusals"),
    [
        (NOTHING, False, (), []),
        (NOTHING, True, (), []),
        (RUNS, False, ("dgx3",), []),
        ({**NOTHING, "left": [{}]}, False, ("dgx3",), []),
        (RUNS, True, ("dgx3",), ["the lane demo that runs on dgx3 is protected: doit stop:demo first"]),
        (
            {"alive": True, "record": {"protect": True}},
            False,
            ("dgx3",),
            ["the lane demo that runs on dgx3 is protected: doit stop:demo first"],
        ),
        ({"unreachable": "no route"}, False, (), [f"{WHERE} does not answer: no route"]),
        ({"problem": "no permission"}, False, (), [f"{WHERE} cannot be looked at: no permission"]),
        ({**NOTHING, "docker_problem": "it is down"}, False, (), [f"{WHERE} cannot be looked at: it is down"]),
    ],
)
def test_what_is_there(fact: Fact, protect: bool, runs: tuple[str, ...], refusals: list[str]) -> None:
    found = Elsewhere({"dgx3": fact})
    assert found.runs == runs
    assert found.refusals(goal(protect=protect)) == refusals


def test_a_node_that_is_no_more_in_the_configuration() -> None:
    assert Elsewhere({}, ("dgx9",)).refusals(goal()) == [text_of_gone("demo", "dgx9")]
    assert "config.toml has no node dgx9" in text_of_gone("demo", "dgx9")
    assert "doit stop:demo" in text_of_gone("demo", "dgx9")
