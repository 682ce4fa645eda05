"""A lane of an operator who is not root on the nodes, as most are not: in the group docker, with a store of his own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from sparkbuild.agent.wire.lanelabels import store_id
from tests.rack.lanes import NAME, PORT, RECIPE, STORE, Lanes, box, is_running, record, shell

pytestmark = pytest.mark.usefixtures("possible")
USER = "op"
HOME = f"/home/{USER}/sparkbuild"


@pytest.fixture
def ours(lanes: Lanes) -> Iterator[Lanes]:
    """A workspace for that user; the image is shared with root's, and so are the weights, by copying them."""
    lanes.ok("sync:demo-ranks", "stage:demo-2x")
    for node in lanes.nodes:
        node.add_user(USER, "docker")
        shell(node, f"cp -a {STORE} {HOME} && chown -R {USER}: {HOME}")
    lanes.config(user=USER, store=HOME, python="/usr/bin/python3")
    yield lanes
    for node in lanes.nodes:
        shell(node, f"docker rm --force {NAME} >/dev/null 2>&1; userdel -r {USER} 2>/dev/null; rm -rf /dev/shm/spark*")


def test_served_by_a_user_of_the_group_docker(ours: Lanes) -> None:
    ours.serve_with('secrets = ["HUB_TOKEN"]')
    ours.env["HUB_TOKEN"] = "hush"
    assert ours.serve()["state"] == "serving"
    assert ours.answers()
    for node in ours.nodes:
        assert not record(node), "nothing in root's store"
        assert shell(node, f"stat -c '%U %a' {HOME}/lanes/{RECIPE}/lane.json").strip() == f"{USER} 600"
        owners = shell(node, "find /dev/shm -path '*sparkbuild-*' -printf '%U %m %y\\n'").splitlines()
        assert {line.split()[0] for line in owners} == {shell(node, f"id -u {USER}").strip()}
        assert {line.split()[1] for line in owners if line.endswith(" f")} == {"600"}
        assert owners[0].split()[1:] == ["700", "d"], "nobody else gets as far as to them"
        read = ["exec", NAME, "/usr/bin/python3.11", "-c", "print(open('/run/secrets/HUB_TOKEN').read())"]
        assert node.docker(*read).out == "hush\n"
    assert ours.state() == "ok"
    assert "serving demo-2x since" in ours.ok("health:pair").out
    assert "all 2 ranks are there" in ours.ok("logs", RECIPE).out
    # root has another store on these nodes: the lane is seen there too, by its containers, and who it is
    ours.config()
    ours.other("second", PORT + 1)
    launch = box(ours.nodes[0])["Config"]["Labels"]["sparkbuild.launch"]
    whose = f"on dgx1 is of lane {RECIPE} of another store ({store_id(HOME)}, launch {launch}, launched by "
    only = f"only doit stop:{RECIPE} of that workspace ends it"
    for text in (whose, only):
        assert text in ours.fails("serve:second").text
    # and his own lane of the same recipe does not take this one for what is left of it
    container = box(ours.nodes[0])["Id"]
    shutil.rmtree(ours.root / ".sparkbuild/lanes")
    for done in (ours.ok("plan", f"serve:{RECIPE}"), ours.fails(f"serve:{RECIPE}"), ours.ok(f"stop:{RECIPE}")):
        assert whose in done.text
        assert only in done.text
        assert "is left" not in done.text
    assert ours.row()["state"].startswith("not running")
    health = ours("health:pair").text
    assert "leftover of ours" not in health
    assert f"doit stop:{RECIPE}\n" not in health
    assert "of another store" in health
    assert box(ours.nodes[0])["Id"] == container
    assert [is_running(node) for node in ours.nodes] == [True, True]
    ours.config(user=USER, store=HOME, python="/usr/bin/python3")
    assert ours.row()["state"] == "serving"
    ours.ok(f"stop:{RECIPE}")
    assert ours.left() == []
    assert not is_running(ours.nodes[0])


def test_a_port_that_root_holds(ours: Lanes) -> None:
    """Who holds it may be hidden from this user, that it is held is not."""
    ours.sleeping()
    node = ours.nodes[0]
    serve = f'echo $$ >/run/port.pid; exec python3 -m http.server {PORT} --bind "$1" >/dev/null 2>&1'
    node.run(["setsid", "--fork", "sh", "-c", serve, "sh", node.address], check=True)
    try:
        shell(node, f"until ss -Hltn | grep -q :{PORT}; do sleep 0.1; done")
        assert f"port {PORT} on dgx1 is held by" in ours.ok("plan", f"serve:{RECIPE}").out
        assert f"port {PORT}" in ours.fails(f"serve:{RECIPE}").text
    finally:
        shell(node, "kill $(cat /run/port.pid)")
    assert ours.left() == []
    assert not box(node)
