"""A part of the workspace that cannot be used: groups say so, make the rest, and do not end well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from paramiko import ChannelException

from sparkbuild.app.goals.assemble import assemble
from sparkbuild.core.errors import NodeError
from sparkbuild.images.docker import reference
from sparkbuild.images.sync import advising
from sparkbuild.nodes.ssh.config import Target
from sparkbuild.nodes.ssh.failures import no_listening, no_way_on
from sparkbuild.workspace.load import load
from tests.agent.fake_docker import Engine, running
from tests.workspace.helpers import FORMAT, digest, put
from tests.workspace_tool import DODO, Done, Tool

SHA = "a" * 64
GOOD = f"127.0.0.1:1/team/good@sha256:{SHA}"
SYNC = f"sync:good-{SHA[:8]}"
LOCK = f"""{FORMAT}data.artifact.url=file:data.gguf
data.artifact.sha256={digest("data")}
busybox.artifact.url=https://example.org/busybox_1_amd64.deb
busybox.artifact.sha256={SHA}
"""
STAGED = '[[staging]]\nid = "data"\nkind = "files"\nsrc = "artifact:pins/data"\n'
BASE = 'kind = "docker"\nlock = "pins"\ndebs = ["busybox"]\n'
WRAPPER = 'kind = "dockerfile"\nlock = "pins"\nbase = "image:base"\nbuild_node = "dgx2"\n'


def recipe(root: Path, name: str, image: str, *, cluster: str = "one", command: str = "x", more: str = "") -> None:
    head = f'cluster = "{cluster}"\nimage = "{image}"\nmodel_id = "m"\n'
    serve = f'[serve]\nruntime = "docker"\ncommand = ["{command}"]\nport = 8000\n'
    put(root, f"recipes/{name}/recipe.toml", head + serve + more)


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The docker of dgx1."""
    with running(tmp_path_factory.mktemp("engine")) as up:
        yield up


@pytest.fixture
def doit(tmp_path: Path, engine: Engine) -> Tool:
    """Two nodes, which are this machine. dgx1 has the image of the recipe `good` in its docker, dgx2 has no docker."""
    nodes = [f'[nodes.dgx1]\nstore = "one"\ndocker = "{engine.path}"', '[nodes.dgx2]\nstore = "two"\ndocker = "/no/x"']
    clusters = '[clusters.one]\nnodes = ["dgx1"]\n[clusters.both]\nnodes = ["dgx1", "dgx2"]\n'
    put(tmp_path, "config.toml", "\n".join(['[nodes.local]\ndocker = "/no/y"', *nodes, clusters]))
    put(tmp_path, "dodo.py", DODO)
    put(tmp_path, "locks/pins.source.lock", LOCK)
    put(tmp_path, "data.gguf", "data")
    recipe(tmp_path, "good", GOOD, more=STAGED)
    goal = assemble(load(tmp_path)).by_task[f"{SYNC}:dgx1"]
    engine.image("a", reference(goal.spec.name, goal.key), digest=GOOD)
    return Tool(tmp_path)


def fails(doit: Tool, code: int, *args: str) -> Done:
    done = doit.fails(*args)
    assert done.code == code, done
    return done


@pytest.mark.parametrize("group", ["sync", "prune", "stage", "sync:*", "stage:*"])
def test_a_group_names_the_recipe_that_it_lacks_and_makes_the_rest(doit: Tool, group: str) -> None:
    doit.ok(group)
    put(doit.root, "recipes/bad/recipe.toml", "cluster = = 1\n")
    made = fails(doit, 2, group)
    assert made.err.startswith("ERROR: recipes/bad/recipe.toml"), made
    assert "recipes/bad/recipe.toml:1" in made.err
    assert "up to date" in made.out
    planned = fails(doit, 2, "plan", group)
    assert "nothing to do: " in planned.out
    assert planned.err == made.err == fails(doit, 2, "why", group).err
    doit.ok("plan", f"{SYNC}:dgx1")
    doit.ok("plan", "stage:good")
    doit.ok("plan", "stage:g*")


def test_a_group_names_the_image_that_it_lacks(doit: Tool) -> None:
    put(doit.root, "images/base/image.toml", "kind = = 1\n")
    recipe(doit.root, "other", "base")
    for group in ("sync", "prune"):
        done = fails(doit, 2, group)
        assert "images/base/image.toml:1" in done.err
        assert "mend images/base first" in done.err
    assert "images/base/image.toml:1" in fails(doit, 2, "stage").err, "a recipe stands on it"
    put(doit.root, "recipes/other/recipe.toml", "")
    assert "recipes/other/recipe.toml" in fails(doit, 2, "plan", "serve:*").err


@pytest.mark.parametrize("command", [("stage",), ("sync",), ("plan", "sync"), ("serve",), ("plan", "stage:good")])
def test_nothing_is_left_of_it(doit: Tool, command: tuple[str, ...]) -> None:
    put(doit.root, "recipes/good/recipe.toml", "cluster = = 1\n")
    done = fails(doit, 3, *command)
    assert "recipes/good/recipe.toml:1" in done.err
    assert "did you mean" not in done.err
    assert "there is no task 'sync:none'" in fails(doit, 3, "sync:none").err
    assert "recipes/good" not in fails(doit, 3, "sync:none").err, "a typing error has another cause"


def test_an_image_whose_recipe_is_broken_is_in_no_group(doit: Tool) -> None:
    put(doit.root, "images/base/image.toml", BASE)
    recipe(doit.root, "bad", "base", cluster="nowhere")
    done = fails(doit, 3, "sync:base")
    assert "there is no task 'sync:base': what it may stand for cannot be read" in done.err
    assert "recipes/bad/recipe.toml:1" in done.err


# -- a base that only a build wants ----------------------------------------------------------------------------------


def test_the_base_of_a_build_is_no_part_of_sync(doit: Tool) -> None:
    put(doit.root, "images/base/image.toml", BASE)
    put(doit.root, "images/wrap/image.toml", WRAPPER)
    put(doit.root, "images/wrap/Dockerfile.j2", "FROM {{ base }}\n")
    for name in ("sync", "sync:*", "*:dgx1"):
        assert "sync:base:dgx2" not in doit.plan(name)
    assert f"ok    {SYNC}:dgx1" in doit.ok("sync").out
    assert "base" not in doit.ok("sync:*").text
    assert "ok    prune:dgx2  passed over: docker is not installed or not running" in doit.ok("prune").out
    assert set(doit.plan("sync:base")) >= {"sync:base:dgx2"}, "by its name it is"
    planned = doit.ok("plan", "image:wrap").out
    for text in (planned, fails(doit, 3, "image:wrap").err):
        assert "docker on dgx2 cannot be asked: docker is not installed" in text
        assert "next:   set `build_node` in images/wrap/image.toml to a node that has docker" in text
        assert "doit health" not in text
    assert "build_node" in doit.ok("plan", "sync:base:dgx2").out


# -- old images ------------------------------------------------------------------------------------------------------


def test_prune_covers_nodes_that_no_recipe_has(doit: Tool, engine: Engine) -> None:
    (doit.root / "recipes/good/recipe.toml").unlink()
    put(doit.root, "images/base/image.toml", BASE)
    for number, letter in enumerate("bcd"):
        engine.image(letter, f"sparkbuild/base:{letter * 12}", key=letter * 64, named=number)
    step = doit.plan("prune")["prune:dgx1"]
    assert step["state"] == "run"
    assert [reason["text"] for reason in step["reasons"]] == [f"removes sparkbuild/base:{'b' * 12}, 1.0 MB"]
    assert doit.states("prune") == {"prune:local": "ok", "prune:dgx1": "run", "prune:dgx2": "ok"}
    assert doit.states()["prune:dgx1"] == "run", "there are docker images, so it is part of all"
    done = doit.ok("prune")
    assert "done  prune:dgx1" in done.out
    assert "passed over" in done.out
    assert [one["RepoTags"][0][-1] for one in engine.images[1:]] == ["c", "d"]
    assert "nothing to do" in doit.ok("plan", "prune").out


# -- images that cannot be had ---------------------------------------------------------------------------------------

FLOATING = "127.0.0.1:1/team/engine:nightly"
GONE = f"127.0.0.1:1/team/engine@sha256:{'b' * 64}"


@pytest.mark.parametrize(
    ("image", "what", "advice"),
    [
        (FLOATING, "127.0.0.1:1/team/engine:nightly is a floating tag", "`doit lock:update serve:bad` writes that"),
        (GONE, "the registry 127.0.0.1:1 cannot be reached", "pull the image on one of the nodes"),
    ],
)
def test_only_what_needs_it_fails(doit: Tool, image: str, what: str, advice: str) -> None:
    recipe(doit.root, "bad", image, command="{{ image.python }}")
    task = next(name for name in doit.plan() if name.startswith("sync:engine"))
    done = fails(doit, 1, "-c", "sync")
    assert f"ok    {SYNC}:dgx1" in done.out
    for text in (f"FAIL  {task}\n      {what}\n", "where:  recipes/bad/recipe.toml", advice, "1 up to date, 1 failed;"):
        assert text in done.out, done
    assert done.out.count("where:  ") == 1
    # with all else that needs it
    done = fails(doit, 1, "-c", "sync", "serve:bad", "stage")
    assert f"FAIL  serve:bad\n      not tried, since this was not made: {task}" in done.out
    assert "1 failed, 1 not tried;" in done.out
    # at once, unless the rest is asked for
    done = fails(doit, 3, "sync")
    assert what in done.err
    assert "recipes/bad/recipe.toml" in done.err
    doit.ok(f"{SYNC}:dgx1")
    # the plan
    step = doit.plan("serve:bad")[task]
    assert step["state"] == "unknown"
    assert what in step["reasons"][0]["text"]
    shown = doit.ok("plan", "serve:bad").out
    for text in (f"unknown dgx1  {task}", what, "where:  recipes/bad/recipe.toml", f"cannot be made without {task}"):
        assert text in shown, shown
    assert "image.python" not in shown
    assert "make it so" not in shown
    assert "unknown" not in doit.states("serve:good").values()


def test_a_floating_tag_says_what_it_means_and_is_asked_once(doit: Tool) -> None:
    recipe(doit.root, "bad", FLOATING, cluster="both")
    done = fails(doit, 1, "-c", "sync")
    assert done.out.count("is a floating tag") == 2, "once for each node"
    assert done.out.count("where:  recipes/bad/recipe.toml") == 1


# -- a docker that is down -------------------------------------------------------------------------------------------


def test_docker_down_on_one_node_is_one_failure(doit: Tool, engine: Engine) -> None:
    recipe(doit.root, "good", GOOD, cluster="both")
    done = fails(doit, 1, "-c", "sync")
    assert f"ok    {SYNC}:dgx1" in done.out
    assert f"FAIL  {SYNC}:dgx2\n      docker on dgx2 cannot be asked: docker is not installed" in done.out
    assert "FAIL  sync\n" not in done.out
    assert f"FAIL  {SYNC}\n" not in done.out
    assert "1 up to date, 1 failed;" in done.out
    done = fails(doit, 3, "sync")
    assert "with -c the goals of the others are made" in done.err
    report = doit("-c", "-r", "json", "sync")
    assert report.code == 1
    assert {row["result"] for row in json.loads(report.out)["tasks"] if row["name"] == f"{SYNC}:dgx2"} == {"fail"}
    engine.broken = True
    assert "2 failed;" in fails(doit, 1, "-c", "sync").out


def test_another_architecture_does_not_stop_the_others(doit: Tool) -> None:
    put(doit.root, "images/foreign/image.toml", f'{BASE}platform = "linux/arm64"\n')
    recipe(doit.root, "foreign", "foreign")
    done = fails(doit, 1, "-c", "sync")
    assert f"ok    {SYNC}:dgx1" in done.out
    assert "image for arm64, node dgx1 is amd64" in done.out
    done = fails(doit, 3, "sync")
    assert "nothing is made: sync:foreign:dgx1 cannot be made" in done.err
    assert "doit health" not in done.err
    step = doit.plan("sync:foreign:dgx1")["image:foreign"]
    assert (step["state"], step["reasons"][0]["text"]) == (
        "unknown",
        "only for sync:foreign:dgx1, which cannot be made",
    )
    assert doit.states("image:foreign")["image:foreign"] == "run", "by itself it can be made"


# -- what status shows of it -----------------------------------------------------------------------------------------


def test_status_of_a_recipe_that_cannot_be_read_names_no_cluster(doit: Tool) -> None:
    put(doit.root, "recipes/good/recipe.toml", "cluster = = 1\n")
    done = fails(doit, 2, "status")
    assert done.out.split()[:2] == ["good", "?"], done
    row = json.loads(doit("status", "--json").out)["lanes"][0]
    assert (row["cluster"], row["node"], row["nodes"]) == (None, None, [])
    assert row["state"].startswith(("not running", "unknown"))


# -- where no port may be forwarded ----------------------------------------------------------------------------------


def test_what_another_node_holds_and_cannot_pass_on_says_what_to_change() -> None:
    target = Target("dgx1", "10.0.0.1", 22, "u", (), (), False, False, "", "", (), (), "", 1.0, None)
    back, on = no_listening(target, "refused"), no_way_on(target, "127.0.0.1", 5, ChannelException(1, "prohibited"))
    for forbidden in (back, on):
        with pytest.raises(NodeError) as caught, advising("build_node"):
            raise forbidden
        assert caught.value.next == "AllowTcpForwarding yes in sshd_config there, and reload sshd; or build_node"
    with pytest.raises(NodeError) as caught, advising("build_node"):
        raise NodeError("another error", next="as it was")
    assert caught.value.next == "as it was"
