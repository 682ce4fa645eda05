"""What cannot become a lane is refused by the plan, with the reason, before anything is built or touched."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.rack.image import Image
from tests.rack.lanes import NAME, PORT, RECIPE, Lanes, box, is_running, names, shell
from tests.workspace_tool import Done

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture
def idle(lanes: Lanes) -> Iterator[Lanes]:
    """Whatever is refused leaves nothing."""
    yield lanes
    assert lanes.left() == []


def refused(lanes: Lanes, *texts: str) -> Done:
    """Plan and serve say so; nothing is begun."""
    for text in texts:
        assert text in lanes.ok("plan", f"serve:{RECIPE}").out
    before = len(lanes.runs())
    done = lanes.fails(f"serve:{RECIPE}")
    for text in texts:
        assert text in done.text
    assert [entry for entry in lanes.runs()[before:] if entry["event"] == "start"] == []
    return done


def test_what_is_missing_on_a_node_is_said_before_anything_is_built(idle: Lanes) -> None:
    idle.sleeping()
    mount = '[[serve.mounts]]\nsource = "/srv/no such"\ntarget = "/mnt/x"\n'
    idle.edit("[serve.docker]\n", '[serve.docker]\ndevices = ["/dev/nothing", "/etc/passwd"]\n')
    idle.edit("[[staging]]\n", f"{mount}\n[[staging]]\n")
    idle.serve_with("min_memory = 9_000_000_000_000")
    shell(idle.nodes[1], "mkdir -p '/srv/no such'")
    idle.store = idle.root / "empty"  # nothing is fetched yet
    idle.config()
    try:
        done = refused(
            idle,
            "dgx1: no /srv/no such, which a mount names",
            "dgx1: no device /dev/nothing",
            "dgx2: no device /dev/nothing",
            "dgx1: /etc/passwd is no device",
            "of memory available, 9000.0 GB wanted (min_memory)",
        )
    finally:
        shell(idle.nodes[1], "rmdir '/srv/no such'")
    assert "dgx2: no /srv/no such" not in done.text
    assert not idle.store.exists() or not list(idle.store.glob("artifacts/*"))


def test_an_entrypoint_that_would_double_the_command(idle: Lanes) -> None:
    idle.sleeping()
    image = idle.root / "images/demo-ranks/image.toml"
    image.write_text(f'{image.read_text()}entrypoint = ["/usr/bin/python3.11"]\n')
    done = refused(idle, "the entrypoint of image", "would double the command")
    assert 'entrypoint ["/usr/bin/python3.11"] before command ["/usr/bin/python3.11", "-c"' in done.text
    assert "set entrypoint = [] in [serve.docker]" in done.text


def test_nodes_that_would_meet_on_a_loopback_address(idle: Lanes) -> None:
    idle.sleeping()
    idle.config(clusters='[clusters.pair]\nnodes = ["dgx1", "dgx2"]\nfabric = "127.0.0.0/8"\n')
    refused(idle, "cluster pair of 2 nodes cannot meet on a loopback address")


def test_a_fabric_that_no_node_is_on(idle: Lanes) -> None:
    idle.sleeping()
    idle.config(clusters='[clusters.pair]\nnodes = ["dgx1", "dgx2"]\nfabric = "10.99.0.0/24"\n')
    refused(idle, "dgx1 has no address on the fabric of cluster pair")


def test_a_template_with_an_unknown_name(idle: Lanes) -> None:
    idle.sleeping()
    idle.serve_with('args = ["{{ ranks }}"]')
    refused(idle, "ranks")


def test_an_image_of_another_architecture(idle: Lanes) -> None:
    idle.sleeping()
    image = idle.root / "images/demo-ranks/image.toml"
    image.write_text(image.read_text().replace("linux/amd64", "linux/arm64"))
    plan = idle.ok("plan", f"serve:{RECIPE}").out
    assert "image for arm64, node dgx2 is amd64" in plan
    refused(idle, "image for arm64, node dgx1 is amd64")


def test_an_image_that_was_loaded_by_hand_for_another_architecture(idle: Lanes) -> None:
    idle.sleeping()
    idle.ok("sync:demo-ranks")
    node = idle.nodes[1]
    reference = reference_of(idle)
    node.docker("tag", reference, "kept:1")
    node.docker.load(Image("foreign:1", architecture="arm64"))
    node.docker("tag", "foreign:1", reference)
    try:
        assert f"{reference} is another image there, without a label of ours" in idle.ok("plan", "sync:demo-ranks").out
    finally:
        node.docker("tag", "kept:1", reference)
        node.docker("rmi", "kept:1", "foreign:1")
    assert idle.state("sync:demo-ranks:dgx2") == "ok"


def reference_of(lanes: Lanes) -> str:
    """The image's name in docker."""
    lines = lanes.nodes[0].docker("images", "--format", "{{.Repository}}:{{.Tag}}").out.splitlines()
    return next(line for line in lines if line.startswith("sparkbuild/demo-ranks:"))


def test_images_that_differ_between_the_nodes(idle: Lanes) -> None:
    """One who retags an image between the look and the launch is noticed: nothing is started."""
    idle.sleeping()
    idle.ok("sync:demo-ranks")
    node = idle.nodes[1]
    reference = reference_of(idle)
    labels = json.loads(node.docker("image", "inspect", "--format", "{{json .Config.Labels}}", reference).out)
    node.docker("tag", reference, "kept:1")
    node.docker.load(Image("other:1", files={"/x": b"x"}, labels=labels))
    try:
        process = idle.start(f"serve:{RECIPE}")
        try:
            idle.wait_for_start(process)
            process.send_signal(signal.SIGSTOP)
            node.docker("tag", "other:1", reference)
        finally:
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 1, out + err
        assert f"lane {RECIPE} is not launched: its nodes do not agree" in out
        assert "has different layers" in out
    finally:
        node.docker("tag", "kept:1", reference)
        node.docker("rmi", "kept:1", "other:1")


def test_a_port_that_somebody_holds(idle: Lanes) -> None:
    idle.sleeping()
    node = idle.nodes[0]
    serve = f'echo $$ >/run/port.pid; exec python3 -m http.server {PORT} --bind "$1" >/dev/null 2>&1'
    node.run(["setsid", "--fork", "sh", "-c", serve, "sh", node.address], check=True)
    try:
        pid = shell(node, f"until ss -Hltn | grep -q :{PORT}; do sleep 0.1; done; cat /run/port.pid").strip()
        done = refused(idle, f"port {PORT}")
        assert f"process {pid}" in done.text
        assert "http.server" in done.text
    finally:
        shell(node, "kill $(cat /run/port.pid)")


def test_a_container_of_a_stranger_is_never_touched(idle: Lanes) -> None:
    idle.sleeping()
    node = idle.nodes[1]
    node.docker.load(Image("tiny:1"))
    for state in ("running", "created"):
        how = ["run", "--detach"] if state == "running" else ["create"]
        made = node.docker(*how, "--name", NAME, "tiny:1", "sleep", "1000").out.strip()
        refused(idle, f"{made[:12]} of image tiny:1, {state}", f"the name {NAME}")
        idle.ok(f"stop:{RECIPE}")
        assert box(node)["Id"] == made
        assert box(node)["State"]["Status"] == state
        assert names(idle.nodes[0]) == []
        node.docker("rm", "--force", NAME)


def test_a_leftover_of_ours_is_named_and_removed(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit("stop_grace = 10.0", "stop_grace = 1.0")  # a first process of a container ignores SIGTERM
    node = lanes.nodes[1]
    node.docker.load(Image("tiny:1"))
    labels = ["--label", f"sparkbuild.recipe={RECIPE}", "--label", "sparkbuild.launch=old"]
    made = node.docker("run", "--detach", "--name", NAME, *labels, "tiny:1", "sleep", "1000").out.strip()
    (text,) = [reason for reason in lanes.reasons() if "is left" in reason]
    assert text.startswith(f"a container of an earlier launch is left on dgx2 and will be removed: {NAME} ({made[:12]}")
    done = lanes.ok(f"serve:{RECIPE}")
    assert f"{NAME} ({made[:12]}" in done.out
    assert box(node)["Id"] != made
    assert is_running(node)
    assert len(lanes.left()) == 2
