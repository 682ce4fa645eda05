"""Old images on nodes: which verdict follows from what a node says, and from what its docker is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbuild.app.goals.assemble import assemble
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.images.prune import BUILT, SERVED, UNUSED, PruneKind, PruneSpec, prune_goal
from sparkbuild.workspace.load import load
from tests.images.test_dockerfile import space
from tests.workspace.helpers import put

NONE = {"silent": "docker is not installed or not running: no /x", "next": "start it", "absent": True}
DOWN = {"silent": "dockerd does not answer", "next": "", "absent": False}
OLD = {"old": [{"reference": "sparkbuild/a:1", "bytes": 2_000_000}], "used": {}}
RECIPE = 'cluster = "pair"\nimage = "base"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'


@pytest.mark.parametrize(
    ("use", "fact", "state", "text"),
    [
        (SERVED, OLD, RUN, "removes sparkbuild/a:1, 2.0 MB"),
        (UNUSED, OLD, RUN, "removes sparkbuild/a:1, 2.0 MB"),
        (SERVED, {"old": [], "used": {}}, OK, "no old images of ours"),
        (SERVED, {"old": [], "used": {"sparkbuild/a:1": ["box"]}}, OK, "sparkbuild/a:1 is used by box"),
        (SERVED, {"old": [], "used": {}, "spared": ["eng"]}, OK, "all of eng stay: images/eng/image.toml"),
        (SERVED, NONE, UNKNOWN, "docker on dgx1 cannot be asked: docker is not installed"),
        (BUILT, NONE, OK, "passed over: docker is not installed"),
        (UNUSED, NONE, OK, "passed over: docker is not installed"),
        (BUILT, DOWN, UNKNOWN, "docker on dgx1 cannot be asked: dockerd does not answer"),
        (UNUSED, DOWN, OK, "passed over: dockerd does not answer"),
        (UNUSED, {"unreachable": "no route"}, UNKNOWN, "dgx1 does not answer: no route"),
    ],
)
def test_verdicts(use: str, fact: dict[str, Any], state: str, text: str) -> None:
    verdict = PruneKind().judge(prune_goal("dgx1", PruneSpec(2, use=use)), fact, None)
    assert verdict.state == state
    assert verdict.bytes == 0, "nothing moves"
    assert text in (verdict.told or "\n".join(reason.text for reason in verdict.reasons))


def test_every_node_has_its_goal_and_what_the_workspace_has_now_is_wanted(tmp_path: Path) -> None:
    space(tmp_path)
    config = (tmp_path / "config.toml").read_text()
    put(tmp_path, "config.toml", config + "\n[nodes.spare]\n[clusters.alone]\nnodes = ['spare']\n")
    put(tmp_path, "recipes/r/recipe.toml", RECIPE.replace("pair", "alone"))
    goals = assemble(load(tmp_path))
    assert goals.problems == {}
    prunes = {goal.node: goal.spec for task, goal in goals.by_task.items() if task.startswith("prune:")}
    assert {node: spec.use for node, spec in prunes.items()} == {
        "local": "unused",
        "dgx1": "built",
        "dgx2": "unused",
        "spare": "served",
    }
    references = {f"sparkbuild/{name}:{goals.by_task[f'image:{name}'].key.short}" for name in ("base", "eng")}
    assert {frozenset(spec.wanted) for spec in prunes.values()} == {frozenset(references)}
    assert not goals.by_task["prune:dgx2"].transient


def test_an_image_that_cannot_be_read_is_spared(tmp_path: Path) -> None:
    space(tmp_path)
    put(tmp_path, "images/eng/image.toml", "kind = = 1\n")
    spec = assemble(load(tmp_path)).by_task["prune:dgx1"].spec
    assert spec.spared == ("eng",)
    assert [reference.partition(":")[0] for reference in spec.wanted] == ["sparkbuild/base"]
