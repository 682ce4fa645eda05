"""A lane runs, and its recipe or its nodes are changed in the workspace: no rank runs on unmentioned."""

from __future__ import annotations

import shutil

import pytest

from tests.rack.lanes import NAME, RECIPE, Lanes, box, is_running, record, shell

pytestmark = pytest.mark.usefixtures("possible")
ONE = '[clusters.pair]\nnodes = ["dgx1"]\n\n[clusters.two]\nnodes = ["dgx2"]\n'
AS_WELL = "it was launched on dgx2 as well"


@pytest.fixture
def served(lanes: Lanes) -> Lanes:
    """It runs on both nodes, and only lives."""
    lanes.sleeping()
    lanes.ok(f"serve:{RECIPE}")
    assert [is_running(node) for node in lanes.nodes] == [True, True]
    return lanes


def without(lanes: Lanes, node: str) -> None:
    """Take a node out of config.toml."""
    path = lanes.root / "config.toml"
    head, _, rest = path.read_text().partition(f"[nodes.{node}]")
    path.write_text(head + rest[rest.index("\n[") + 1 :])


def test_a_node_less_in_the_cluster(served: Lanes) -> None:
    served.config(clusters=ONE)
    (said,) = [reason for reason in served.reasons() if AS_WELL in reason]
    assert "what runs there is stopped" in said
    assert any(reason.startswith("nodes:") for reason in served.reasons())
    served.ok(f"serve:{RECIPE}")
    assert [is_running(node) for node in served.nodes] == [True, False]
    assert record(served.nodes[1])["stopped_at"]
    assert not [reason for reason in served.reasons() if AS_WELL in reason]


def test_a_node_less_as_a_colleague_sees_it(served: Lanes) -> None:
    """Nothing in his workspace says where it was launched; the record does."""
    shutil.rmtree(served.root / ".sparkbuild/lanes")
    served.config(clusters=ONE)
    assert [reason for reason in served.reasons() if AS_WELL in reason]
    served.ok(f"stop:{RECIPE}")
    assert served.left() == []


def test_another_cluster(served: Lanes) -> None:
    served.config(clusters=f'{ONE}\n[clusters.both]\nnodes = ["dgx1", "dgx2"]\n')
    served.edit('cluster = "pair"', 'cluster = "two"')
    assert any("it was launched on dgx1 as well" in reason for reason in served.reasons())
    served.ok(f"serve:{RECIPE}")
    assert [is_running(node) for node in served.nodes] == [False, True]
    served.ok(f"stop:{RECIPE}")
    assert served.left() == []


def test_stopped_where_it_runs_and_not_only_where_the_recipe_says(served: Lanes) -> None:
    served.config(clusters=ONE)
    done = served.ok(f"stop:{RECIPE}")
    assert done.out.count("stopped container") == 2
    assert served.left() == []


def test_a_node_that_the_configuration_has_no_more(served: Lanes) -> None:
    served.config(clusters='[clusters.pair]\nnodes = ["dgx1"]\n')
    without(served, "dgx2")
    assert any(f"{AS_WELL}, which config.toml does not have" in reason for reason in served.reasons())
    before = box(served.nodes[0])["Id"]
    done = served.fails(f"serve:{RECIPE}")
    assert "config.toml has no node dgx2" in done.text
    assert f"docker stop {NAME}" in done.text
    assert box(served.nodes[0])["Id"] == before
    done = served.fails(f"stop:{RECIPE}")
    assert f"lane {RECIPE} may still run on dgx2" in done.text
    assert [is_running(node) for node in served.nodes] == [False, True]
    assert served.ok(f"stop:{RECIPE}"), "it was said"
    served.ok(f"serve:{RECIPE}")
    assert is_running(served.nodes[0])


@pytest.mark.parametrize("how", ["renamed", pytest.param("removed", marks=pytest.mark.long), "broken"])
def test_a_recipe_that_is_gone(served: Lanes, how: str) -> None:
    folder = served.path().parent
    if how == "broken":
        (folder / "recipe.toml").write_text("cluster = ")
    elif how == "renamed":
        folder.rename(folder.with_name("other"))
    else:
        shutil.rmtree(folder)
    assert f"{RECIPE}  " in served("status").out
    assert "1" in served.ok("logs", RECIPE).out
    assert "stop:demo-2x" in served("list").out
    done = served.ok(f"stop:{RECIPE}")
    assert done.out.count("stopped container") == 2
    assert served.left() == []
    if how != "broken":
        assert f"{RECIPE}  " not in served("status").out
        assert "stop:demo-2x" not in served("list").out


def test_a_recipe_that_is_gone_and_whose_ranks_are_dead(served: Lanes) -> None:
    shutil.rmtree(served.path().parent)
    for node in served.nodes:
        shell(node, f"docker kill {NAME}")
    assert f"{RECIPE}  " not in served("status").out
    assert "does not run on dgx1, dgx2" in served.ok(f"stop:{RECIPE}").out
    assert "stop:demo-2x" not in served("list").out
