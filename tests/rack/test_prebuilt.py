"""Images of a registry on real nodes: pulled once, passed on, and known again by what they are made of."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkbuild.core.errors import ConfigError, NodeError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.images.docker import reference
from sparkbuild.images.prebuilt import PrebuiltSpec, prebuilt_goal
from sparkbuild.images.prune import PruneSpec, prune_goal
from sparkbuild.workspace.locks.reference import parse
from tests.rack.made import MACHINE, make
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.registry_server import INDEX, MANIFEST
from tests.rack.syncing import STORE, Yard, forget, names, received, yard

pytestmark = pytest.mark.usefixtures("possible")
SERVER = Path(__file__).with_name("registry_server.py")
PORT = 5000


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def publish(
    folder: Path,
    store: Path,
    *,
    pack: Callable[[bytes], bytes] = gzipped,
    media: str = "gzip",
    architecture: str = MACHINE,
    several: bool = False,
    maker: str = "somebody else",
) -> tuple[str, int]:
    """An image as a registry has it, with compressed layers; its digest, and the bytes of its layers. `several`: the
    digest is that of an index, in which it is one of two platforms.
    """
    made = make(store, [("engine", 12), ("weights of none", 4)], name="published", architecture=architecture)
    (folder / "blobs").mkdir(parents=True)
    (folder / "manifests").mkdir()
    config = json.loads((store / "archives/published" / made.goal.key.short / "config.json").read_text())
    config["config"]["Labels"] = {"maker": maker}
    parts = []
    for diff_id in made.diff_ids:
        content = pack((store / "blobs/sha256" / diff_id[7:]).read_bytes())
        kind = "docker.image.rootfs.diff.tar.gzip" if media == "gzip" else f"oci.image.layer.v1.tar+{media}"
        parts.append((f"application/vnd.{kind}", content))
    first, *layers = [("application/vnd.docker.container.image.v1+json", json.dumps(config).encode()), *parts]
    rows = []
    for kind, content in (first, *layers):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        (folder / "blobs" / digest).write_bytes(content)
        rows.append({"mediaType": kind, "size": len(content), "digest": digest})
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": rows[0], "layers": rows[1:]}).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for name in (digest, "nightly"):
        (folder / "manifests" / name).write_bytes(manifest)
    if several:
        row = {"mediaType": MANIFEST, "size": len(manifest), "digest": digest}
        own = {**row, "platform": {"os": "linux", "architecture": architecture}}
        other = {**row, "digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "riscv64"}}
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [other, own]}).encode()
        digest = f"sha256:{hashlib.sha256(index).hexdigest()}"
        (folder / "manifests" / digest).write_bytes(index)
    return digest, made.bytes


class Registry:
    """On a node's loopback, where docker takes plain HTTP."""

    def __init__(self, node: Node, folder: Path, login: str = "") -> None:
        self.node = node
        place = node.path("/srv/registry")
        subprocess.run(["rm", "-rf", place], check=True)
        subprocess.run(["cp", "-r", folder, place], check=True)
        node.path("/srv/registry.py").write_text(SERVER.read_text())
        argv = [*node.inside(), "python3", "/srv/registry.py", "/srv/registry", str(PORT), login]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline()

    @property
    def blobs_given(self) -> int:
        log = self.node.path("/srv/registry/log")
        return sum("GET" in line and "/blobs/" in line for line in log.read_text().splitlines()) if log.exists() else 0

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def pair(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(2, disk_mb=400) as rack:
        yield rack


@pytest.fixture
def op(pair: Rack, tmp_path: Path) -> Iterator[Yard]:
    for node in pair.nodes:
        node.run(["rm", "-rf", f"{STORE}/archives", f"{STORE}/blobs"], check=True)
        forget(node)
        for row in node.docker("images", "-q", "--no-trunc").out.split():
            node.docker("image", "rm", "-f", row, check=False)
    with yard(pair, tmp_path) as made:
        yield made


@pytest.fixture
def published(op: Yard, tmp_path: Path) -> tuple[Path, str, int]:
    digest, size = publish(tmp_path / "registry", op.store)
    return tmp_path / "registry", digest, size


def goals(pair: Rack, digest: str, *, each: bool = False, where: str = f"127.0.0.1:{PORT}") -> list[Goal]:
    nodes = tuple(node.name for node in pair.nodes)
    spec = PrebuiltSpec("engine", parse(f"{where}/team/engine@{digest}"), nodes, each)
    return [prebuilt_goal(name, spec) for name in nodes]


def test_a_private_registry_is_asked_with_the_login_of_the_operator(
    pair: Rack, op: Yard, published: tuple[Path, str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is told it through the agent's stdin: nothing of it stays on the node, in a command or in a log."""
    folder, digest, _ = published
    password = "swordfish-of-the-tests"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    host = pair.nodes[0]
    server = Registry(host, folder, f"ops:{password}")
    try:
        first, _ = goals(pair, digest)
        with pytest.raises(SparkbuildError) as caught:
            op.sync(first)
        assert "no basic auth credentials" in str(caught.value).lower() or "unauthorized" in str(caught.value).lower()
        auth = base64.b64encode(f"ops:{password}".encode()).decode()
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {f"127.0.0.1:{PORT}": {"auth": auth}}}))
        assert op.sync(first) > 0
        assert op.look(first).state == OK
    finally:
        server.end()
    for secret in (password, auth):
        found = host.run(
            ["grep", "-rlsF", secret, "/root", STORE, "/tmp", "/etc", "/var/lib/docker/image"], check=False
        )
        assert found.out == ""
        assert not [path for path in tmp_path.rglob("*.log") if secret in path.read_text(errors="replace")]


def test_pulled_once_and_passed_on(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    folder, digest, size = published
    first, second = goals(pair, digest)
    ours = reference("engine", first.key)
    registry = Registry(pair.nodes[0], folder)
    try:
        assert op.why(first) == "run: not on the node yet"
        assert op.sync(first) > 0.9 * size
        assert registry.blobs_given == 4
    finally:
        registry.end()
    assert op.look(second).bytes is not None, "how big it is was seen on the first node"
    before = received(pair.nodes[1])
    assert op.sync(second) == size, "there is no registry that this node could reach"
    assert received(pair.nodes[1]) - before < 1.05 * size + 300_000
    for node in pair.nodes:
        assert ours in names(node)
        assert not [name for name in names(node) if "incoming" in name]
    told = pair.nodes[1].docker("image", "inspect", "-f", "{{.RepoDigests}}", ours).out
    assert f":{PORT}" not in told, "the registry's name does not survive the way"
    assert op.sync(first) == 0, "nothing to do"


def test_both_at_once_ask_the_registry_once(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    folder, digest, _ = published
    registries = [Registry(node, folder) for node in pair.nodes]
    try:
        op.sync_all(goals(pair, digest))
        assert sorted(registry.blobs_given for registry in registries) == [0, 4]
    finally:
        for registry in registries:
            registry.end()


def test_each_for_itself(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    folder, digest, _ = published
    registries = [Registry(node, folder) for node in pair.nodes]
    try:
        op.sync_all(goals(pair, digest, each=True))
        assert [registry.blobs_given for registry in registries] == [4, 4]
    finally:
        for registry in registries:
            registry.end()


def test_one_that_was_pulled_by_hand(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    folder, digest, _ = published
    registry = Registry(pair.nodes[0], folder)
    try:
        pair.nodes[0].docker("pull", f"127.0.0.1:{PORT}/team/engine@{digest}")
    finally:
        registry.end()
    first, second = goals(pair, digest)
    assert (op.why(first), op.look(first).bytes) == ("run: is there, without a name of ours", 0)
    assert op.sync(first) == 0
    op.sync(second)


def test_another_image_of_that_name(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    folder, digest, _ = published
    first, _ = goals(pair, digest)
    registry = Registry(pair.nodes[0], folder)
    try:
        op.sync(first)
        other = make(op.store, [("other", 1)], name="other")
        op.sync(other.on(pair.nodes[0].name))
        ours = reference("engine", first.key)
        pair.nodes[0].docker("image", "rm", "-f", ours, f"127.0.0.1:{PORT}/team/engine@{digest}", check=False)
        pair.nodes[0].docker("tag", other.reference, ours)
        assert op.why(first) == f"run: {ours} is another image there"
        op.sync(first)
    finally:
        registry.end()


def test_an_older_digest_is_pruned_with_all_that_was_made_of_it(pair: Rack, op: Yard, tmp_path: Path) -> None:
    node, made = pair.nodes[0], []
    for maker in ("one", "two"):
        digest, _ = publish(tmp_path / maker, op.store, maker=maker)
        image = parse(f"127.0.0.1:{PORT}/team/engine@{digest}")
        spec = PrebuiltSpec(f"engine-{digest[7:15]}", image, tuple(one.name for one in pair.nodes))
        made.append([prebuilt_goal(one.name, spec) for one in pair.nodes])
        registry = Registry(node, tmp_path / maker)
        try:
            for goal in made[-1]:
                op.sync(goal)
        finally:
            registry.end()
    old, new = (reference(goals[0].spec.name, goals[0].key) for goals in made)
    archives = node.path(f"{STORE}/archives")
    assert len(list(archives.glob("engine-*"))) == 2
    for one in pair.nodes:
        prune = prune_goal(one.name, PruneSpec(1, (new,)))
        assert [reason.text.split(",")[0] for reason in op.look(prune).reasons] == [f"removes {old}"]
        op.sync(prune)
        left = one.docker("images", "--no-trunc", "--digests", "--format", "{{.Repository}}:{{.Tag}} {{.Digest}}").out
        assert new in left
        assert made[0][0].spec.image.digest not in left, "nor by its registry's name"
        assert old not in left
        assert op.look(made[1][0]).state == OK
    assert [path.name for path in archives.glob("engine-*")] == [made[1][0].spec.name]


def test_no_registry(pair: Rack, op: Yard, published: tuple[Path, str, int]) -> None:
    """Said before anything is started."""
    _, digest, _ = published
    first, _ = goals(pair, digest)
    error = op.kinds["image"].preflight(first, op.look(first))
    assert isinstance(error, NodeError)
    assert error.what == f"the registry 127.0.0.1:{PORT} cannot be reached"
    with pytest.raises(NodeError, match="docker cannot have"):
        op.sync(first)


@pytest.fixture
def here(published: tuple[Path, str, int]) -> Iterator[str]:
    """The registry on this machine; host and port."""
    argv = [sys.executable, str(SERVER), str(published[0]), "0"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


def test_a_floating_tag_is_refused_with_its_digest(
    pair: Rack, op: Yard, published: tuple[Path, str, int], here: str
) -> None:
    spec = PrebuiltSpec("engine", parse(f"{here}/team/engine:nightly"), (pair.nodes[0].name,), recipes=("r",))
    goal = prebuilt_goal(pair.nodes[0].name, spec)
    verdict = op.look(goal)
    assert verdict.state == UNKNOWN
    error = op.kinds["image"].preflight(goal, verdict)
    assert isinstance(error, ConfigError)
    assert error.where == "recipes/r/recipe.toml"
    assert error.found == f"it means {published[1]} now"
    assert f'image = "{here}/team/engine:nightly@{published[1]}"' in error.wanted
    assert error.next == "`doit lock:update serve:r` writes that"
    with pytest.raises(ConfigError, match="floating tag"):
        op.sync(goal)


def test_what_the_registry_has_and_has_not(pair: Rack, op: Yard, published: tuple[Path, str, int], here: str) -> None:
    for digest, wanted in ((published[1], type(None)), (f"sha256:{'0' * 64}", ConfigError)):
        goal = goals(pair, digest, where=here)[0]
        assert isinstance(op.kinds["image"].preflight(goal, Verdict(RUN)), wanted)
    wait_for("the nodes are as before", lambda: op.look(goals(pair, published[1])[0]).state != OK)
