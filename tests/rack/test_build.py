"""Images built on a real node with its own BuildKit: layers, labels and gates; what fails, and what that leaves."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import ROOT
from tests.rack.building import DOCKERFILE, GATE, STORE, Yard
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.workspace_tool import finish, until

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture(scope="module")
def node(possible: None) -> Iterator[Node]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(1) as rack:
        yield rack.nodes[0]


@pytest.fixture
def yard(node: Node, tmp_path: Path) -> Yard:
    node.docker.start()
    made = Yard(tmp_path / "ws", node)
    made.reset()
    return made


# --- what comes out --------------------------------------------------------------------------------------------------


def test_it_is_built_gated_labelled_and_exported(yard: Yard) -> None:
    yard.ok("image:tiny")
    found, receipt = yard.inspect(), yard.receipt()
    labels = found["Config"]["Labels"]
    layers = found["RootFS"]["Layers"]
    assert labels["sparkbuild.key"] == receipt["key"]
    assert json.loads(labels["sparkbuild.parts"]) == receipt["parts"]
    assert labels["sparkbuild.lock"].startswith("pins@")
    assert json.loads(labels["sparkbuild.layers"]) == layers == receipt["layers"]
    assert [(gate["id"], gate["ok"], gate["text"]) for gate in receipt["gates"]] == [("hello", True, "hello from 1.2")]
    assert json.loads(labels["sparkbuild.gates"]) == receipt["gates"]
    assert receipt["parts"]["args"] == {"VERSION": "1.2", "LANES": 3, "FAST": True}
    for digest, size in zip(layers, receipt["sizes"], strict=True):
        content = yard.node.path(f"{STORE}/blobs/sha256/{digest[7:]}").read_bytes()
        assert (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") == (size, digest)
    folder = yard.node.path(f"{STORE}/archives/tiny/{receipt['key'][:12]}")
    config = (folder / "config.json").read_bytes()
    assert receipt["config"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
    # containerd's store calls an image by its manifest
    assert yard.node.docker.is_containerd or receipt["config"] == found["Id"]
    assert json.loads(config)["rootfs"]["diff_ids"] == layers
    assert "RUN echo 1.2 >/version" in yard.log(), "the whole log is kept"
    assert all(not tag.endswith(".part") for tag in yard.tags())


def test_what_is_unchanged_is_not_built(yard: Yard) -> None:
    yard.ok("image:tiny")
    started = yard.node.run(["date", "+%s.%N"]).out.strip()
    before = len(yard.runs())
    assert yard.ok("image:tiny").out.count("ok ") == 3
    assert yard.states("image:tiny")["image:tiny"] == "ok"
    until_now = yard.node.run(["date", "+%s.%N"]).out.strip()
    assert yard.node.docker("events", "--since", started, "--until", until_now).out == ""
    assert all(entry.get("event") != "start" for entry in yard.runs()[before:])


def test_an_export_that_was_lost_is_made_from_docker_without_a_build(yard: Yard) -> None:
    yard.ok("image:tiny")
    layer = yard.receipt()["layers"][-1]
    yard.node.path(f"{STORE}/blobs/sha256/{layer[7:]}").unlink()
    reason, _ = yard.plan("image:tiny")["image:tiny"]["reasons"]
    assert reason["text"] == f"its layer {layer[:19]} was removed"
    yard.ok("image:tiny")
    assert "nothing is built" in yard.log()
    assert yard.states("image:tiny")["image:tiny"] == "ok"


def test_only_what_changed_is_built(yard: Yard) -> None:
    yard.ok("image:tiny")
    first = yard.receipt()
    (yard.root / "images/tiny/hello.sh").write_text("#!/bin/sh\necho good day\n")
    (reason,) = yard.plan("image:tiny")["image:tiny"]["reasons"]
    assert reason["part"] == "file hello.sh"
    yard.fails("image:tiny")  # its gate wants another greeting
    yard.image(gates=GATE.replace('expect = "hello"', 'expect = "good day"'))
    yard.ok("image:tiny")
    second = yard.receipt()
    assert second["layers"][0] == first["layers"][0], "the base"
    assert second["layers"][1] != first["layers"][1]


def test_a_wrapper_follows_its_base(yard: Yard) -> None:
    yard.image("FROM {{ base }}\nRUN echo wrapped >/wrapped\n", name="wrapper", base="image:tiny", files=[], gates="")
    yard.ok("image:wrapper")
    first = yard.receipt("wrapper")
    assert first["parts"]["base"] == yard.receipt()["key"]
    tag = f"sparkbuild/tiny:{yard.receipt()['key'][:12]}"
    yard.node.docker("image", "rm", "--force", tag)
    yard.node.run(["rm", "-rf", f"{STORE}/archives/tiny"], check=True)
    yard.ok("image:tiny")
    assert yard.states("image:wrapper")["image:wrapper"] == "ok", "the base was made again, and has the same key"
    yard.image(more='args = { VERSION = "1.3" }')
    plan = yard.plan("image:wrapper")
    assert [reason["part"] for reason in plan["image:wrapper"]["reasons"]] == ["base"]
    yard.ok("image:wrapper")
    assert yard.receipt("wrapper")["layers"][:3] == yard.receipt()["layers"]
    assert yard.receipt("wrapper")["parts"]["base"] != first["parts"]["base"]


def test_from_nothing_with_a_locked_artifact(yard: Yard) -> None:
    yard.image(
        "FROM scratch\nADD {{ artifacts.busybox }} /\n", base="scratch", files=[], artifacts=["busybox"], gates=""
    )
    yard.ok("image:tiny")
    assert len(yard.receipt()["layers"]) == 1
    assert "sync:base" not in str(yard.plan("image:tiny"))


# --- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        ('command = ["/bin/sh", "-c", "echo one; echo two; exit 3"]', "bad: exit code 3\none\ntwo"),
        ('command = ["/bin/sh", "-c", "echo one"]\nexpect = "two"', "bad: 'two' is not in what it printed\none"),
        ('command = ["/bin/sh", "-c", "sleep 60"]\ntimeout = 1.0', "bad: did not end within 1 s"),
        ('command = ["/bin/none"]', "bad: exit code 127"),
        ('command = ["/bin/sh", "-c", "nc -w 1 10.0.0.1 80"]', "bad: exit code 1"),
        ('command = ["/bin/sh", "-c", "echo $WANT; false"]\nenv = { WANT = "given" }', "bad: exit code 1\ngiven"),
    ],
)
def test_a_gate_that_fails_leaves_no_image(yard: Yard, gate: str, text: str) -> None:
    yard.image(gates=f'{GATE}[[gates]]\nid = "bad"\n{gate}\n')
    told = yard.fails("image:tiny").out
    assert "image tiny did not pass its gate bad" in told
    for line in text.splitlines():
        assert line in told
    assert "gate hello: ok" in yard.log(), "every result is in the log"
    assert yard.clean()
    assert yard.states("image:tiny")["image:tiny"] == "run"


# --- steps that fail -------------------------------------------------------------------------------------------------


def test_a_step_that_fails_is_named_with_what_it_printed(yard: Yard) -> None:
    yard.image(f"{DOCKERFILE}RUN echo one; echo two >&2; exit 5\n")
    told = yard.fails("image:tiny").out
    assert "image tiny: step 4/4 RUN echo one; echo two >&2; exit 5 failed" in told
    assert "one\n" in told
    assert "two\n" in told
    assert "exit code: 5" in told
    hint = "it is built without a network: lock what it fetches as an artifact, or set network = true in image.toml"
    assert f"next:   should it need the network: {hint}; the task's log" in told
    assert yard.clean()
    yard.image(f"{DOCKERFILE}RUN false\n", network=True)
    assert "network: lock" not in yard.fails("image:tiny").out
    yard.image(f"{DOCKERFILE}COPY none /\n")
    assert "network: lock" not in yard.fails("image:tiny").out, "only RUN can want one"


@pytest.mark.parametrize(
    "step",
    ["/bin/busybox wget http://deb.example.org/x", "/bin/busybox wget http://10.1.2.3/x", "nslookup x.example.org"],
)
def test_a_step_that_would_fetch_is_told_that_it_cannot(yard: Yard, step: str) -> None:
    """Whatever the program says of it, or dies of: busybox's wget crashes without a resolver."""
    yard.image(f"{DOCKERFILE}RUN {step}\n")
    told = yard.fails("image:tiny").out
    assert "step 4/4 RUN" in told
    assert "it is built without a network: lock what it fetches as an artifact, or set network = true" in told


def test_a_step_without_a_network_fails(yard: Yard) -> None:
    step = f"RUN nc -w 2 {yard.node.address} 22 </dev/null\n"
    yard.image(f"{DOCKERFILE}{step}")
    told = yard.fails("image:tiny").out
    assert "step 4/4 RUN nc" in told
    assert "it is built without a network" in told
    yard.image(f"{DOCKERFILE}RUN grep -q eth0 /proc/net/dev\n", network=True)
    yard.ok("image:tiny")


def test_a_dockerfile_that_docker_does_not_read(yard: Yard) -> None:
    yard.image(f"{DOCKERFILE}RUNN true\n")
    assert "an instruction that may not stand here" in yard.fails("image:tiny").err, "said before docker is asked"
    yard.image(f"{DOCKERFILE}EXPOSE banana\n")
    assert "banana" in yard.fails("image:tiny").out, "what docker alone judges is said in its words"
    assert yard.clean()


# --- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "swordfish-4711"
MOUNT = "RUN --mount=type=secret,id=TOKEN"


def test_a_secret_is_nowhere_but_in_its_step(node: Node, tmp_path: Path) -> None:
    yard = Yard(tmp_path / "ws", node, {"TOKEN": SECRET})
    yard.reset()
    step = f"{MOUNT} cat /run/secrets/TOKEN; wc -c </run/secrets/TOKEN >/length\n"
    gate = '[[gates]]\nid = "length"\ncommand = ["/bin/sh", "-c", "cat /length; ls /run/secrets"]\nexpect = "14"\n'
    yard.image(f"{DOCKERFILE}{step}", secrets=["TOKEN"], gates=gate.replace("; ls /run/secrets", ""))
    yard.ok("image:tiny")
    found = yard.inspect()
    history = yard.node.docker("history", "--no-trunc", found["RepoTags"][0]).out
    for text in (json.dumps(found), history, yard.log(), *(path.read_text() for path in yard.root.rglob("*.jsonl"))):
        assert SECRET not in text
    assert "***" in yard.log(), "what the step printed of it"
    for blob in yard.node.path(f"{STORE}/blobs/sha256").iterdir():
        assert SECRET.encode() not in blob.read_bytes()
    assert "sparkbuild-build" not in yard.node.run(["ls", "/dev/shm"]).out


@pytest.mark.parametrize(
    ("keys", "dockerfile", "text"),
    [
        ({}, f"{DOCKERFILE}RUN echo {SECRET}\n", "Dockerfile.j2 holds the value of secret TOKEN"),
        ({"more": f'args = {{ VERSION = "x{SECRET}" }}'}, DOCKERFILE, "arg VERSION holds the value of secret TOKEN"),
    ],
)
def test_a_secret_in_the_open_is_refused(
    node: Node, tmp_path: Path, keys: dict[str, Any], dockerfile: str, text: str
) -> None:
    yard = Yard(tmp_path / "ws", node, {"TOKEN": SECRET})
    yard.reset()
    yard.image(dockerfile, secrets=["TOKEN"], **keys)
    told = yard.fails("image:tiny").out
    assert text in told
    assert SECRET not in told
    assert SECRET not in yard.log()
    assert yard.clean()


def test_a_secret_without_a_value(yard: Yard) -> None:
    yard.image(f"{DOCKERFILE}{MOUNT} true\n", secrets=["TOKEN"])
    assert "secret TOKEN has no value" in yard.fails("image:tiny").out


# --- what was tampered with ------------------------------------------------------------------------------------------


def test_a_tampered_package_of_the_base(yard: Yard) -> None:
    for tag in yard.tags():
        yard.node.docker("image", "rm", "--force", tag, check=False)  # else nothing would be made of the package
    (yard.root / "debs/busybox-static_1_amd64.deb").write_bytes(b"other")
    told = yard.fails("image:tiny").out
    assert "what was fetched is not what locks/" in told
    assert yard.clean()


def test_a_tampered_patch(yard: Yard) -> None:
    patch = yard.root / "images/tiny/fix.patch"
    patch.write_text("a patch")
    digest = hashlib.sha256(b"a patch").hexdigest()
    pins = {"src.repository": "file:src.git", "src.commit": "1" * 40, "src.tree": "2" * 40}
    yard.lock(**pins, **{"input.images/tiny/fix.patch.sha256": digest})
    yard.image(sources=["src"], more='args = { VERSION = "1" }\npatches = { src = ["fix.patch"] }')
    assert yard.states("image:tiny")["image:tiny"] == "run"
    patch.write_text("another patch")
    told = yard.fails("image:tiny").text
    assert "images/tiny/fix.patch is not what the lock pins" in told


def test_a_forged_base(yard: Yard) -> None:
    yard.ok("sync:base")
    docker = yard.node.docker
    (tag,) = (tag for tag in yard.tags() if tag.startswith("sparkbuild/base:"))
    yard.ok("image:tiny")
    docker("tag", f"sparkbuild/tiny:{yard.receipt()['key'][:12]}", tag)
    yard.image(more='args = { VERSION = "2" }')
    yard.ok("image:tiny")
    assert len(yard.receipt()["layers"]) == 3, "the right base was brought back first"


# --- faults ----------------------------------------------------------------------------------------------------------


def test_a_build_that_is_interrupted_ends_and_leaves_nothing(yard: Yard) -> None:
    yard.image(f"{DOCKERFILE}RUN echo begun; sleep 300\n")
    yard.ok("sync:base")
    process = yard.start("image:tiny")
    until(lambda: yard.node.run(["pgrep", "-f", "^sleep 300"]).code == 0)
    process.send_signal(signal.SIGINT)
    done = finish(process, 30)
    assert done.code == 130, done
    assert "Traceback" not in done.text
    last = done.out.splitlines()[-1]
    assert last.startswith("interrupted in image:tiny (docker's build cache keeps its finished steps); ")
    assert last.endswith("; what was finished is kept, and the same command goes on from there")
    until(lambda: yard.node.run(["pgrep", "-f", "^sleep 300"]).code != 0)
    until(yard.clean)
    yard.image()
    yard.ok("image:tiny")


def test_a_gate_that_is_interrupted_leaves_no_container(yard: Yard) -> None:
    yard.image(gates='[[gates]]\nid = "slow"\ncommand = ["/bin/busybox", "sleep", "301"]\n')
    yard.ok("sync:base")
    process = yard.start("image:tiny")
    until(lambda: yard.node.run(["pgrep", "-f", "^/bin/busybox sleep 301"]).code == 0)
    process.send_signal(signal.SIGTERM)
    assert finish(process, 30).code == 143
    until(yard.clean)


def test_dockerd_down_is_neither_built_nor_missing(yard: Yard) -> None:
    yard.node.dockerd_stop()
    plan = yard.plan("image:tiny")["image:tiny"]
    assert plan["state"] == "unknown"
    assert "docker on dgx1 cannot be asked" in plan["reasons"][0]["text"]
    assert "cannot be asked" in yard.fails("image:tiny").err
    yard.node.dockerd_start()
    assert yard.states("image:tiny")["image:tiny"] == "run"


def test_dockerd_dies_in_the_middle(yard: Yard) -> None:
    yard.image(f"{DOCKERFILE}RUN sleep 300\n")
    yard.ok("sync:base")
    process = yard.start("image:tiny")
    until(lambda: yard.node.run(["pgrep", "-f", "^sleep 300"]).code == 0)
    yard.node.dockerd_stop(9)
    done = finish(process, 60)
    assert done.code == 1, done
    assert "Traceback" not in done.text
    yard.node.run(["pkill", "-f", "^sleep 300"])
    yard.node.dockerd_start()
    yard.image()
    yard.ok("image:tiny")


def test_a_cable_that_is_cut_in_the_middle(yard: Yard) -> None:
    """It is noticed in about 35 s, the node ends the build by itself, and no plan promises what is there already."""
    yard.ok("image:tiny")
    yard.image(f"{DOCKERFILE}RUN echo begun; sleep 307\n")
    process = yard.start("image:tiny")
    until(lambda: yard.node.run(["pgrep", "-f", "^sleep 307"]).code == 0)
    began = time.monotonic()
    yard.node.cut()
    try:
        done = finish(process, 60)
        took = time.monotonic() - began
        assert yard.node.run(["pgrep", "-f", "^sleep 307"]).code == 0, "it is told nothing"
        until(lambda: yard.node.run(["pgrep", "-f", "^sleep 307"]).code != 0, 60)
    finally:
        yard.node.heal()
    assert "lost the connection to" in done.out
    assert 25 < took < 45, took
    until(lambda: not [tag for tag in yard.tags() if tag.endswith(".part")])
    plan = yard.plan("image:tiny")["image:tiny"]
    assert (plan["state"], plan["bytes"]) == ("run", None), "what of it will be new is known when it is built"
    told = yard.ok("plan", "image:tiny").out
    assert " ?  dockerfile: " in told
    yard.image()
    yard.ok("image:tiny")


def test_what_is_built_and_was_not_exported_is_no_build_in_the_plan(yard: Yard) -> None:
    yard.ok("image:tiny")
    folder = f"{STORE}/archives/tiny/{yard.receipt()['key'][:12]}"
    sizes = dict(zip(yard.receipt()["layers"], yard.receipt()["sizes"], strict=True))
    *_, last = sizes
    yard.node.path(f"{STORE}/blobs/sha256/{last[7:]}").unlink()
    plan = yard.plan("image:tiny")["image:tiny"]
    assert plan["bytes"] == sizes[last]
    assert [reason["text"] for reason in plan["reasons"]] == [
        f"its layer {last[:19]} was removed",
        "docker has it as it was built: only the export is made",
    ]
    yard.node.run(["rm", "-r", folder], check=True)
    plan = yard.plan("image:tiny")["image:tiny"]
    assert plan["reasons"][0]["text"] == "docker has it as it was built: only the export is made"
    yard.ok("image:tiny")
    assert "nothing is built" in yard.log()
    yard.node.run(["rm", "-r", folder], check=True)
    assert yard.plan("image:tiny")["image:tiny"]["bytes"] == 0, "all of its layers are in the store"


def test_a_full_disk(tmp_path: Path) -> None:
    with Rack.up(1, disk_mb=200) as rack:
        yard = Yard(tmp_path / "ws", rack.nodes[0])
        yard.image(f"{DOCKERFILE}RUN dd if=/dev/zero of=/big bs=1M count=400\n")
        told = yard.fails("image:tiny").out
        assert "step 4/4 RUN dd" in told
        assert "make room on docker's disk" in told
        assert yard.clean()
        yard.image(f"{DOCKERFILE}RUN dd if=/dev/urandom of=/big bs=1M count=60\n")
        told = yard.fails("image:tiny").out  # built, but its layers have no room a second time
        assert "space" in told.lower()
        assert not list(yard.node.path(f"{STORE}").rglob("*.part"))
        assert yard.states("image:tiny")["image:tiny"] == "run"


# --- twice -----------------------------------------------------------------------------------------------------------


def test_two_builds_that_are_the_same(yard: Yard) -> None:
    yard.image("FROM {{ base }}\nCOPY {{ files }}/hello.sh /hello.sh\n", gates="")
    yard.ok("sync:base")
    assert "two builds are the same, 2 layers" in yard.ok("repro:tiny").out
    assert yard.clean()


def test_two_builds_that_differ_say_in_what(yard: Yard) -> None:
    step = "RUN mkdir /d; cat /proc/sys/kernel/random/uuid >/d/content; "
    step += "u=$(cat /proc/sys/kernel/random/uuid); touch /d/$u; touch -d @0 /d /d/*; sleep 1; touch /d/time\n"
    yard.image(f"{DOCKERFILE}{step}", gates="")
    yard.ok("sync:base")
    told = yard.fails("repro:tiny").out
    assert "two builds of tiny differ in" in told
    for line in ("d/content: content", "d/time: mtime", ": added", ": removed"):
        assert line in told
    assert yard.clean()


def test_two_builds_that_differ_in_times_of_folders_only(yard: Yard) -> None:
    """BuildKit dates what it makes itself; a stage of its own, copied from, keeps that out (as images/demo does)."""
    step = "RUN sleep 1.1; touch -d @$SOURCE_DATE_EPOCH /a/b"
    yard.image(
        f"FROM {{{{ base }}}}\nARG SOURCE_DATE_EPOCH\nCOPY {{{{ files }}}}/hello.sh /a/b/hello\n{step}\n", gates=""
    )
    yard.ok(f"sync:base:{yard.node.name}")
    told = yard.ok("repro:tiny").out
    assert "two builds have the same files; only times of folders differ, in 2 of 3 layers: a, a/b, " in told
    assert "This BuildKit does not rewrite them (docs/images.md" in told
    assert "FAIL" not in told
    stage = f"COPY {{{{ files }}}}/hello.sh /out/a/b/hello\n{step.replace('/a/b', '/out/a/b /out/a /out')}\n"
    yard.image(
        f"FROM {{{{ base }}}} AS made\nARG SOURCE_DATE_EPOCH\n{stage}FROM {{{{ base }}}}\nCOPY --from=made /out/ /\n",
        gates="",
    )
    assert "two builds are the same, 2 layers" in yard.ok("repro:tiny").out


def test_a_docker_that_cannot_be_asked_is_not_a_base_that_is_missing(yard: Yard) -> None:
    task = f"sync:base:{yard.node.name}"
    for tag in yard.tags():
        yard.node.docker("image", "rm", "--force", tag, check=False)
    told = yard.fails("repro:tiny").out
    assert "base is needed for that, and is not there" in told
    assert f"next:   doit {task} repro:tiny" in told
    yard.ok(task)
    yard.node.dockerd_stop()
    try:
        told = yard.fails("repro:tiny").out
    finally:
        yard.node.dockerd_start()
    assert "is not there" not in told
    assert f"nobody can say whether image://{yard.node.name}/base is there" in told
    assert f"where:  node {yard.node.name}" in told
    assert f"docker on {yard.node.name} cannot be asked" in told
    assert "systemctl start docker, then doit repro:tiny" in told


# --- the shipped demo ------------------------------------------------------------------------------------------------


def test_the_demo_from_locked_inputs_only(lane_store: Path, node: Node, tmp_path: Path) -> None:
    """On top of demo-ranks, whose packages and wheels the lock pins: no registry, and no network in the build."""
    node.docker.start()
    yard = Yard(tmp_path / "ws", node)
    yard.reset()
    shutil.rmtree(yard.root / "images")
    for folder in ("images/demo-ranks", "images/llamacpp", "images/demo", "locks"):
        shutil.copytree(ROOT / folder, yard.root / folder, dirs_exist_ok=True)
    path = yard.root / "images/demo/image.toml"
    path.write_text(path.read_text().replace('build_node = "local"', f'build_node = "{node.name}"'))
    config = yard.root / "config.toml"
    config.write_text(f'[nodes.local]\nstore = "{lane_store}"\n{config.read_text()}')
    yard.ok("image:demo", timeout=600)
    gates = {gate["id"]: gate["text"].splitlines()[-1] for gate in yard.receipt("demo")["gates"]}
    assert gates == {
        "python": gates["python"],
        "engine": "imported xllamacpp",
        "report": "sparkbuild demo",
        "unit": "OK",
    }
    assert "two builds are the same" in yard.ok("repro:demo", timeout=600).out
    node.docker("image", "rm", "--force", yard.receipt("demo")["reference"], check=False)
