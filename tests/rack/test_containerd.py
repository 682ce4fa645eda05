"""Images on docker's containerd store, which keeps layers as the blobs they came in: an image that shares a layer with
one whose blobs are others arrives whole all the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.plan import OK, UNKNOWN
from sparkbuild.images.docker import reference
from tests.rack.made import make
from tests.rack.rack import Rack
from tests.rack.syncing import Yard, names, spool, yard
from tests.rack.test_prebuilt import PORT, Registry, goals, publish

LAYERS = [("engine", 12), ("mine", 2)]  # the first is also in what `publish` publishes


@pytest.fixture(scope="module")
def pair(containerd: str) -> Iterator[Rack]:
    with Rack.up(2, disk_mb=800, engine=containerd) as rack:
        yield rack


@pytest.fixture
def op(pair: Rack, tmp_path: Path) -> Iterator[Yard]:
    """Nodes with nothing on them, at most for the length of a test."""
    for node in pair.nodes:
        node.run(["sh", "-c", "docker image rm -f $(docker images -q --no-trunc); rm -rf /srv/sparkbuild"])
    with yard(pair, tmp_path) as made:
        yield made


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-cq"], input=content, capture_output=True, check=True).stdout


def test_an_image_of_ours_whose_layers_docker_has_compressed(pair: Rack, op: Yard, tmp_path: Path) -> None:
    node, digest = pair.nodes[0], publish(tmp_path / "registry", op.store)[0]
    registry = Registry(node, tmp_path / "registry")
    try:
        node.docker("pull", f"127.0.0.1:{PORT}/team/engine@{digest}")
    finally:
        registry.end()
    image = make(op.store, LAYERS)
    assert op.look(image.on(node.name)).bytes == image.sizes[2], "docker has the others, as other blobs"
    assert op.sync(image.on(node.name)) == image.bytes, "which are brought as well"
    assert "docker keeps 2 of 3 layers in another compression" in op.log
    assert spool(node) == []
    assert not [name for name in names(node) if "incoming" in name]
    again = make(op.store, LAYERS, salt="another key")
    assert op.sync(again.on(node.name)) == 0, "once"
    node.docker("image", "rm", f"127.0.0.1:{PORT}/team/engine@{digest}")
    node.dockerd_stop()
    node.dockerd_start()
    assert op.look(image.on(node.name)).state == OK, "and they stay"


@pytest.mark.parametrize("several", [False, True], ids=["one platform", "an index"])
def test_an_image_of_a_registry_whose_layers_docker_has_as_they_are(
    pair: Rack, op: Yard, tmp_path: Path, several: bool
) -> None:
    digest = publish(tmp_path / "registry", op.store, several=several)[0]
    first, second = goals(pair, digest)
    op.sync(make(op.store, LAYERS).on(first.node))
    registry = Registry(pair.nodes[0], tmp_path / "registry")
    try:
        op.sync(first)
        assert "docker keeps 2 of 3 layers" in op.log
    finally:
        registry.end()
    op.sync(make(op.store, LAYERS).on(second.node))
    op.sync(second)
    for node in pair.nodes:
        ours = reference("engine", first.key)
        shown = node.docker("image", "inspect", "-f", "{{len .RootFS.Layers}} {{.Config.Labels.maker}}", ours).out
        assert shown == "3 somebody else\n"
        assert node.docker("run", "--rm", ours, "echo", "runs").out == "runs\n"


def test_an_image_that_docker_has_in_part_is_told_and_mended(pair: Rack, op: Yard, tmp_path: Path) -> None:
    """It was pulled by hand, beside one of ours; whoever looks at the node gets an answer."""
    node, digest = pair.nodes[0], publish(tmp_path / "registry", op.store)[0]
    image = make(op.store, LAYERS)
    op.sync(image.on(node.name))
    registry = Registry(node, tmp_path / "registry")
    try:
        first, _ = goals(pair, digest)
        node.docker("pull", f"127.0.0.1:{PORT}/team/engine@{digest}")
        ours = reference("engine", first.key)
        node.docker("tag", f"127.0.0.1:{PORT}/team/engine@{digest}", ours)
        assert node.docker("image", "inspect", "-f", "{{.RootFS.Layers}}", ours).out == "[]\n"
        assert op.why(first) == "run: is there, without a name of ours"
        assert op.look(image.on(node.name)).state == OK
        assert op.sync(first) == 0
    finally:
        registry.end()


@pytest.mark.skipif(not Path("/usr/bin/zstd").exists(), reason="apt-get install zstd: it makes the test's input")
def test_layers_that_are_compressed_with_zstd(pair: Rack, op: Yard, tmp_path: Path) -> None:
    digest = publish(tmp_path / "registry", op.store, pack=zstd, media="zstd")[0]
    registry = Registry(pair.nodes[0], tmp_path / "registry")
    try:
        for goal in goals(pair, digest):
            op.sync(goal)
    finally:
        registry.end()


def test_an_image_for_another_architecture_is_refused(pair: Rack, op: Yard, tmp_path: Path) -> None:
    digest = publish(tmp_path / "registry", op.store, architecture="riscv64")[0]
    first, second = goals(pair, digest)
    registry = Registry(pair.nodes[0], tmp_path / "registry")
    try:
        with pytest.raises(ConfigError, match="is for another architecture than this node"):
            op.sync(first)
        verdict = op.look(first)
        assert verdict.state == UNKNOWN
        assert verdict.reasons[0].text == f"image for riscv64, node {first.node} is amd64"
        with pytest.raises(ConfigError, match="is for another architecture"):
            op.sync(second)
        assert not names(pair.nodes[1])
    finally:
        registry.end()
