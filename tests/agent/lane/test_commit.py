"""A container of an image that somebody made of a lane carries the lane's labels, and is not the lane."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.agent.docker.fact import docker_fact
from sparkbuild.agent.docker.ours import Shelf
from tests.agent.fake_docker import running


def test_a_copy_is_not_ours(tmp_path: Path) -> None:
    with running(tmp_path) as engine:
        engine.image("1", "sparkbuild/x:1")
        engine.image("2", "mine:1")
        engine.images[-1]["Config"] = {"Labels": {"sparkbuild.recipe": "demo", "sparkbuild.launch": "l1"}}
        lane, copy, again = (
            engine.add("a", "running"),
            engine.add("b", "running", name="try"),
            engine.add("c", "exited", name="sparkbuild-glm", recipe="glm", launch="l7"),
        )
        for container, image in zip(engine.containers, "122", strict=True):
            container["ImageID"] = f"sha256:{image * 64}"
        assert {box["id"] for box in Shelf(engine.path).boxes} == {lane, again}, "one launched from the copy is ours"
        ours = {one["id"]: one["ours"] for one in docker_fact(engine.path, [])["containers"]}
        assert ours == {lane: True, copy: False, again: True}
        engine.containers[1]["Names"] = ["/sparkbuild-demo"]
        engine.containers.pop(0)
        assert Shelf(engine.path).stranger("demo").startswith(copy[:12]), "it stands in the lane's place"
