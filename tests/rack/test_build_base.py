"""Images built from a base in a registry: pulled by its digest as a step of its own, once; never another one."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rack.building import Yard
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.rack.registry_server import MANIFEST

pytestmark = pytest.mark.usefixtures("possible")
PORT = 5000
SERVER = Path(__file__).with_name("registry_server.py")
FOLDER = "/srv/registry"


@pytest.fixture(scope="module")
def node(possible: None) -> Iterator[Node]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(1) as rack:
        yield rack.nodes[0]


@pytest.fixture
def yard(node: Node, tmp_path: Path) -> Yard:
    made = Yard(tmp_path / "ws", node)
    made.reset()
    for row in node.docker("images", "--quiet", "--no-trunc").out.split():
        node.docker("image", "rm", "--force", row, check=False)
    made.ok("image:base")
    return made


def publish(yard: Yard, architecture: str = "amd64", maker: str = "somebody else") -> str:
    """The assembled base as a registry on the node has it, with a label of somebody else; its digest."""
    store = yard.root / ".sparkbuild/node"
    (path,) = store.glob("archives/base/*/config.json")
    config = json.loads(path.read_text())
    config["config"]["Labels"] = {"maker": maker}
    config["architecture"] = architecture
    (diff_id,) = config["rootfs"]["diff_ids"]
    layer = gzip.compress((store / "blobs/sha256" / diff_id[7:]).read_bytes(), 1, mtime=0)
    rows = []
    yard.node.run(["rm", "-rf", FOLDER], check=True)
    for kind in ("blobs", "manifests"):
        yard.node.path(f"{FOLDER}/{kind}").mkdir(parents=True)
    for kind, content in (
        ("application/vnd.docker.container.image.v1+json", json.dumps(config).encode()),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", layer),
    ):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        yard.node.path(f"{FOLDER}/blobs/{digest}").write_bytes(content)
        rows.append({"mediaType": kind, "size": len(content), "digest": digest})
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": rows[0], "layers": rows[1:]}).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    yard.node.path(f"{FOLDER}/manifests/{digest}").write_bytes(manifest)
    return digest


@contextmanager
def registry(node: Node) -> Iterator[None]:
    node.path("/srv/registry.py").write_text(SERVER.read_text())
    argv = [*node.inside(), "python3", "/srv/registry.py", FOLDER, str(PORT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


def from_registry(yard: Yard, digest: str, version: str = "1.2") -> None:
    yard.lock(**{"runtime.base.image": f"127.0.0.1:{PORT}/team/base@{digest}"})
    yard.image(base="lock:runtime.base.image", more=f'args = {{ VERSION = "{version}" }}')


def test_it_is_pulled_once_by_its_digest(yard: Yard) -> None:
    digest = publish(yard)
    from_registry(yard, digest)
    with registry(yard.node):
        yard.ok("image:tiny")
    assert f"pull 127.0.0.1:{PORT}/team/base@{digest}" in yard.log()
    assert yard.receipt()["parts"]["base"] == f"127.0.0.1:{PORT}/team/base@{digest}"
    from_registry(yard, digest, "1.3")
    yard.ok("image:tiny")  # and the registry is gone
    assert "pull " not in yard.log()
    assert yard.inspect()["Config"]["Labels"]["maker"] == "somebody else"


def test_a_registry_that_is_not_there(yard: Yard) -> None:
    from_registry(yard, publish(yard))
    told = yard.fails("image:tiny").out
    assert "connection refused" in told.lower()
    assert yard.clean()


def test_a_tampered_base(yard: Yard) -> None:
    digest = publish(
        yard, maker="one whose image docker has no part of"
    )  # what BuildKit's cache has, it asks nobody for
    path = yard.node.path(f"{FOLDER}/manifests/{digest}")
    path.write_bytes(path.read_bytes().replace(b'"schemaVersion": 2', b'"schemaVersion" : 2'))
    from_registry(yard, digest)
    with registry(yard.node):
        told = yard.fails("image:tiny").out
    assert "digest" in told
    assert yard.clean()


def test_a_base_for_another_architecture(yard: Yard) -> None:
    from_registry(yard, publish(yard, "arm64"))
    with registry(yard.node):
        told = yard.fails("image:tiny").out
    assert "is for another architecture" in told or "no matching manifest" in told
    assert yard.clean()
