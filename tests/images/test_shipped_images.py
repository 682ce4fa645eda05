"""The images that are built and come with the package: each loads, renders and plans; what cannot be had is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkbuild.app.goals.assemble import Goals, assemble
from sparkbuild.core.errors import LockError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import RUN, UNKNOWN
from sparkbuild.core.run import Run
from sparkbuild.images.archive import ArchiveKind
from sparkbuild.images.building import Builder
from sparkbuild.images.rendering import dockerfile
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.workspace.load import load
from tests.engine import ROOT

BUILT = ("b12x", "demo", "mia-tp4", "r35")


@pytest.fixture(scope="module")
def goals() -> Goals:
    return assemble(load(ROOT))


def goal_of(goals: Goals, name: str) -> Goal:
    assert not [problem for problem in goals.problems if problem in {f"images/{name}", f"locks/{name}"}]
    return goals.by_task[f"image:{name}"]


def rendered(goal: Goal) -> str:
    return dockerfile(goal.spec, (ROOT / goal.spec.dockerfile).read_text())


@pytest.mark.parametrize("name", BUILT)
def test_it_renders(goals: Goals, name: str) -> None:
    goal = goal_of(goals, name)
    text = rendered(goal)
    assert "{{" not in text
    assert "{%" not in text
    base = goal.spec.base
    assert f"FROM {base.reference}\n" in text
    assert re.fullmatch(r"sparkbuild/[a-z0-9-]+:[0-9a-f]{12}|[a-z/]+@sha256:[0-9a-f]{64}", base.reference)
    assert goal.spec.gates
    assert not goal.spec.network


@pytest.mark.parametrize("name", BUILT)
def test_what_it_copies_is_in_its_context(goals: Goals, name: str) -> None:
    goal = goal_of(goals, name)
    spec = goal.spec
    there = {f"sources/{source.component}" for source in spec.sources} | {
        f"artifacts/{name}" for name in spec.unpublished
    }
    there |= {f"artifacts/{one.filename}" for one in spec.artifacts.values()}
    there |= {f"files/{Path(path).name}" for path in spec.files} | {"artifacts"}
    for line in rendered(goal).splitlines():
        words = [word for word in line.split()[1:-1] if not word.startswith("--")]
        if line.startswith(("COPY ", "ADD ")) and "--from=" not in line:
            for word in words:
                assert any(word == place or word.startswith(f"{place}/") for place in there), (name, word)


def test_the_plan_of_each(goals: Goals) -> None:
    kind = ArchiveKind(str(ROOT))
    for name in BUILT:
        goal = goal_of(goals, name)
        fact = {"present": False, "engine": {"architecture": goal.spec.architecture}}
        verdict = kind.judge(goal, fact, None)
        assert verdict.state == (UNKNOWN if name == "r35" else RUN), name
    (reason,) = kind.judge(goal_of(goals, "r35"), {"present": False}, None).reasons
    assert reason.text.startswith("locks/r35.source.lock cannot pin what is not public: flashinfer.python: ")
    assert "flashinfer.jit-cache" in reason.text
    assert "flashkda" in reason.text


def test_what_is_not_public_is_not_built(goals: Goals, tmp_path: Path) -> None:
    goal = goal_of(goals, "r35")
    nodes = Nodes(tmp_path, {"local": Place("local", "store")})
    run = Run(root=ROOT, log=tmp_path / "log", agent=nodes.agent)
    with pytest.raises(LockError, match="image r35 cannot be built") as caught:
        Builder(str(ROOT), nodes).build("local", goal.spec, goal.key, run)
    assert "flashinfer.python.wheel.sha256" in str(caught.value)
    assert "images/r35/README.md" in str(caught.value)
    assert (ROOT / "images/r35/README.md").exists()


def test_the_wrapper_stands_on_the_release(goals: Goals) -> None:
    release, wrapper = goal_of(goals, "r35"), goal_of(goals, "b12x")
    assert wrapper.key.parts["base"] == release.key.digest
    assert goals.by_task["sync:r35:local"] in wrapper.needs
    assert goals.by_task["sync:r35:local"].transient, "it is there for this build alone"


def test_the_release_is_what_was_published(goals: Goals) -> None:
    parts = goal_of(goals, "r35").key.parts
    assert parts["base"].startswith("voipmonitor/vllm@sha256:93ac5228")
    trees = {name: parts[f"source {name}"] for name in ("vllm", "b12x", "lmcache")}
    assert {name: tree[:8] for name, tree in trees.items()} == {
        "vllm": "6d5cc349",
        "b12x": "d963f030",
        "lmcache": "5a88a1ea",
    }
