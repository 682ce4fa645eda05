"""Docker images decided from facts alone: the key, the two goals, and what is right or wrong with what is there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.agent.docker import images
from sparkbuild.agent.wire.dockerimages import EngineRoom, ImageAbsent, ImageFact
from sparkbuild.agent.wire.images import ArchiveAbsent, ArchiveFact
from sparkbuild.agent.wire.receipts import ArchiveReceipt
from sparkbuild.app.goals.assemble import assemble
from sparkbuild.core.errors import SpaceError
from sparkbuild.core.goal import Goal, Input
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.run import Kind
from sparkbuild.core.state import Made
from sparkbuild.images.archive import ArchiveKind
from sparkbuild.images.docker import DockerSpec, archive_goal, archive_in_store, python_in, reference, sync_goal
from sparkbuild.images.kind import ImageKind
from sparkbuild.images.room import check_room
from sparkbuild.images.sync import SyncKind
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.upstream.artifacts import ArtifactSpec
from sparkbuild.workspace.load import load
from tests.workspace.helpers import FORMAT, put

SPEC = DockerSpec(
    name="ranks",
    lock=f"pins@{'f' * 64}",
    debs=(ArtifactSpec("libc6_2.36_amd64.deb", "c" * 64, "", "http://deb.example.org/libc6_2.36_amd64.deb"),),
    requirements="images/ranks/requirements.lock",
    python="3.11",
    files=("images/ranks/ranks.py", "images/llamacpp/serve.py"),
    env={"LANG": "C.UTF-8"},
    entrypoint=(),
    command=("sh",),
    platform="linux/amd64",
)
CONTENT = {SPEC.requirements: "1", SPEC.files[0]: "2", SPEC.files[1]: "3"}
LAYERS = ["sha256:" + "1" * 64, "sha256:" + "2" * 64]


def goal(content: dict[str, str] | None = None, **changes: Any) -> Goal:
    inputs = tuple(Input(path, digit * 64) for path, digit in {**CONTENT, **(content or {})}.items())
    return archive_goal("local", msgspec.structs.replace(SPEC, **changes), inputs, ())


def test_the_two_goals() -> None:
    archive = goal()
    sync = sync_goal("dgx1", archive)
    assert (str(archive.uri), archive.task, archive.transient) == ("archive://local/ranks", "image:ranks", True)
    assert (str(sync.uri), sync.task, sync.transient) == ("image://dgx1/ranks", "sync:ranks:dgx1", False)
    assert sync.key == archive.key
    assert sync.needs == (archive,)
    assert sync.pools == ("dgx1",)
    assert reference("ranks", sync.key) == f"sparkbuild/ranks:{sync.key.short}"
    assert archive_in_store("ranks", sync.key) == f"archives/ranks/{sync.key.short}"
    assert python_in(SPEC) == "/usr/bin/python3.11"


DEB = ArtifactSpec("libc6_2.37_amd64.deb", "d" * 64, "", "http://deb.example.org/libc6_2.37_amd64.deb")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"content": {SPEC.requirements: "9"}}, "requirements"),
        ({"content": {SPEC.files[0]: "9"}}, "file ranks.py"),
        ({"debs": (DEB,)}, "deb libc6"),
        ({"python": "3.12"}, "python"),
        ({"platform": "linux/arm64"}, "platform"),
        ({"env": {"LANG": "C"}}, "env"),
        ({"entrypoint": ("a",)}, "entrypoint"),
        ({"command": ()}, "command"),
    ],
)
def test_what_changes_the_key(changes: dict[str, Any], part: str) -> None:
    old, new = goal().key.parts, goal(**changes).key.parts
    assert [name for name in new if new[name] != old[name]] == [part]
    assert goal(**changes).key != goal().key


def test_what_does_not() -> None:
    assert goal(lock=f"other@{'0' * 64}").key == goal().key
    assert goal(files=SPEC.files[::-1]).key == goal().key
    moved = (msgspec.structs.replace(SPEC.debs[0], url="http://mirror.example.org/x.deb"),)
    assert goal(debs=moved).key == goal().key
    bare = goal(requirements="", python="3.12")
    assert bare.key == goal(requirements="").key, "without wheels, no Python is asked for"


# --- what the agent makes of docker's answer -------------------------------------------------------------------------

QUERY = {"reference": "sparkbuild/ranks:abc", "key": "a" * 64, "layers": [], "architecture": "amd64"}


def image(**changes: Any) -> dict[str, Any]:
    labels = {"sparkbuild.key": "a" * 64, "sparkbuild.layers": json.dumps(LAYERS, separators=(",", ":"))}
    labels |= changes.pop("labels", {})
    return {
        "Architecture": "amd64",
        "Size": 7,
        "Config": {"Labels": {name: value for name, value in labels.items() if value is not None}},
        "RootFS": {"Layers": LAYERS},
        **changes,
    }


@pytest.mark.parametrize(
    ("found", "query", "text"),
    [
        (None, {}, ""),
        (image(), {}, ""),
        (image(), {"layers": LAYERS}, ""),
        (image(), {"layers": LAYERS[:1]}, "not the layers that were made"),
        (image(RootFS={"Layers": LAYERS[::-1]}), {}, "not the layers that the label lists"),
        (image(RootFS={"Layers": []}), {}, "without all of its content"),
        (image(RootFS={}), {}, "without all of its content"),
        (image(labels={"sparkbuild.layers": None}), {}, "not the layers that the label lists"),
        (image(labels={"sparkbuild.key": "b" * 64}), {}, "another image there: its key is bbbbbbbbbbbb"),
        (image(labels={"sparkbuild.key": None}), {}, "without a label of ours"),
        (image(Config={"Labels": None}), {}, "without a label of ours"),
        (image(Config=None), {}, "without a label of ours"),
        (image(Architecture="arm64"), {}, "is for arm64"),
    ],
)
def test_a_label_is_believed_only_with_the_layers(found: Any, query: dict[str, Any], text: str) -> None:
    told = images.problem(found, QUERY | query)
    assert told.endswith(text)
    assert bool(told) is bool(text)


def test_no_docker_is_neither_present_nor_missing(tmp_path: Path) -> None:
    fact = images.observe({**QUERY, "docker": str(tmp_path / "docker.sock")})
    assert fact["present"] is False
    assert f"no {tmp_path}/docker.sock" in fact["silent"]


# --- verdicts --------------------------------------------------------------------------------------------------------

LAST = Made("b" * 64, {**goal().key.parts, "file ranks.py": "0" * 64}, 1.0, 2.0, 150_000_000, "run")
ENGINE = EngineRoom(
    architecture="amd64",
    store="overlay2",
    root="/var/lib/docker",
    free=10**12,
    store_free=None,
    shared=False,
)
MISSING = ImageAbsent(present=False, problem="", engine=ENGINE)


def receipt(key: str, sizes: list[int], size: int) -> str:
    """The receipt of an image of those layers."""
    made = ArchiveReceipt(
        format="sparkbuild-archive/v2",
        name="ranks",
        reference="sparkbuild/ranks:1",
        key=key,
        parts={},
        lock="",
        layers=LAYERS,
        sizes=sizes,
        config="sha256:0",
        architecture="amd64",
        gates=[],
        bytes=size,
        at=1.0,
    )
    return json.dumps(made)


@pytest.fixture
def kind(tmp_path: Path) -> SyncKind:
    places = {"local": Place("local", "store"), "dgx1": Place("ssh", "/srv/sparkbuild")}
    return SyncKind(Nodes(tmp_path, places))


def judged(kind: SyncKind, fact: Any, last: Made | None = None) -> Verdict:
    return kind.judge(sync_goal("dgx1", goal()), fact, last)


@pytest.mark.parametrize(
    ("fact", "last", "state", "text"),
    [
        ({"unreachable": "no route"}, None, UNKNOWN, "dgx1 does not answer: no route"),
        ({"present": False, "silent": "no socket", "next": "start it"}, None, UNKNOWN, "no socket (start it)"),
        ({"present": False, "silent": "no socket"}, None, UNKNOWN, "docker on dgx1 cannot be asked: no socket"),
        (MISSING, None, RUN, "not on the node yet"),
        (MISSING, LAST, RUN, "file ranks.py: 000000000000"),
        ({**MISSING, "problem": "x is another image there"}, LAST, RUN, "x is another image there"),
        ({**MISSING, "engine": {"architecture": "arm64"}}, None, UNKNOWN, "image for amd64, node dgx1 is arm64"),
        ({**MISSING, "engine": {}}, None, RUN, "not on the node yet"),
        (
            {"present": False, "problem": "KeyError: 'x'"},
            LAST,
            UNKNOWN,
            "dgx1 cannot be understood: KeyError",
        ),
    ],
)
def test_verdicts(kind: SyncKind, fact: Any, last: Made | None, state: str, text: str) -> None:
    verdict = judged(kind, fact, last)
    assert verdict.state == state
    assert text in "\n".join(reason.text for reason in verdict.reasons)


def test_before_it_is_made_nobody_knows_how_much_of_it_will_move(kind: SyncKind) -> None:
    """The last one may have been sent whole, and the next be one small layer."""
    assert judged(kind, MISSING, LAST).bytes is None
    same = Made(goal().key.digest, goal().key.parts, 1.0, 2.0, 150_000_000, "run")
    assert judged(kind, MISSING, same).bytes == 150_000_000


def test_what_is_there_is_told(kind: SyncKind) -> None:
    fact = ImageFact(present=True, architecture="amd64", layers=LAYERS, bytes=151_900_000, pinned=False, engine=ENGINE)
    verdict = judged(kind, fact)
    assert (verdict.state, verdict.bytes, verdict.told) == (OK, 0, "amd64, 2 layers, 151.9 MB")


def test_the_bytes_and_layers_come_from_the_receipt(kind: SyncKind, tmp_path: Path) -> None:
    sync = sync_goal("dgx1", goal())
    assert kind.query(sync)["layers"] == []
    assert judged(kind, MISSING).bytes is None
    place = tmp_path / "store" / archive_in_store("ranks", sync.key) / "receipt.json"
    put(place.parent, place.name, receipt(sync.key.digest, [], 9))
    assert kind.query(sync)["layers"] == LAYERS
    assert judged(kind, MISSING).bytes == 9, "which layers are there is not known"
    for text in ("{", "[]", receipt("0" * 64, [], 9)):
        place.write_text(text)
        assert kind.query(sync)["layers"] == []


def test_room() -> None:
    check_room("dgx1", None, 10**12)
    check_room("dgx1", {**ENGINE, "free": None}, 10**12)
    assert check_room("dgx1", {**ENGINE, "free": 120}, 100)
    with pytest.raises(SpaceError, match="docker's disk on dgx1 has no room"):
        check_room("dgx1", {**ENGINE, "free": 119}, 100)
    with pytest.raises(SpaceError, match=r"2 times what is missing"):
        check_room("dgx1", {**ENGINE, "store": "containerd", "free": 199}, 100)


@pytest.mark.parametrize(
    ("store_free", "shared", "arrived", "fits"),
    [(100, False, 0, True), (99, False, 0, False), (99, False, 1, True), (219, True, 0, False), (220, True, 0, True)],
)
def test_room_for_layers_that_arrive(store_free: int, shared: bool, arrived: int, fits: bool) -> None:
    engine: EngineRoom = {**ENGINE, "free": 10**6, "store_free": store_free, "shared": shared}
    assert check_room("dgx1", engine, 100, arrived) is fits


@pytest.mark.parametrize(
    ("fact", "size", "texts"),
    [
        ({"missing": LAYERS}, 100, ["not on the node yet"]),
        ({"missing": LAYERS[1:]}, 70, ["not on the node yet", "1 of 2 layers are missing there"]),
        ({"missing": []}, 0, ["not on the node yet", "0 of 2 layers are missing there"]),
        ({"missing": LAYERS[1:], "arrived": 20}, 50, ["not on the node yet", "1 of 2 layers", "0.0 MB have arrived"]),
    ],
)
def test_the_bytes_that_move_are_those_of_missing_layers(
    kind: SyncKind, tmp_path: Path, fact: dict[str, Any], size: int, texts: list[str]
) -> None:
    sync = sync_goal("dgx1", goal())
    place = tmp_path / "store" / archive_in_store("ranks", sync.key) / "receipt.json"
    put(place.parent, place.name, receipt(sync.key.digest, [30, 70], 100))
    verdict = judged(kind, {**MISSING, **fact})
    assert (verdict.state, verdict.bytes) == (RUN, size)
    assert [reason.text[: len(text)] for reason, text in zip(verdict.reasons, texts, strict=True)] == texts


OTHERS = [LAYERS[:1], [LAYERS[0], "sha256:" + "9" * 64], ["sha256:" + "8" * 64, LAYERS[1]], []]


def test_a_layer_counts_only_on_top_of_the_same_ones() -> None:
    class Engine:
        def images(self, *, every: bool) -> Any:
            assert every
            return [{"Id": f"sha256:{index}"} for index in range(len(OTHERS))]

        def image(self, name: str) -> Any:
            return {"RootFS": {"Layers": OTHERS[int(name)]}}

    engine: Any = Engine()
    assert images.missing(engine, LAYERS) == LAYERS[1:]
    assert images.missing(engine, [LAYERS[1], LAYERS[0]]) == [LAYERS[1], LAYERS[0]]
    assert images.missing(engine, LAYERS[:1]) == []
    assert images.missing(engine, []) == []


@pytest.mark.parametrize(
    ("fact", "last", "state", "text"),
    [
        ({"unreachable": "x"}, None, UNKNOWN, "local does not answer: x"),
        (ArchiveAbsent(present=False), None, RUN, "not assembled yet"),
        (ArchiveAbsent(present=False, problem="its archive was removed"), LAST, RUN, "its archive was removed"),
        (ArchiveAbsent(present=False, other={"parts": LAST.parts}), None, RUN, "file ranks.py: 000000000000"),
        (ArchiveFact(present=True, layers=LAYERS, bytes=1_500_000, gates=[]), None, OK, ""),
    ],
)
def test_verdicts_of_archives(fact: Any, last: Made | None, state: str, text: str) -> None:
    verdict = ArchiveKind("/srv/space").judge(goal(), fact, last)
    assert verdict.state == state
    assert text in "\n".join(reason.text for reason in verdict.reasons)


def test_each_image_has_its_kind(tmp_path: Path) -> None:
    kind: Kind[Any] = ImageKind(str(tmp_path), Nodes(tmp_path, {"local": Place("local", "store")}))
    assert kind.query(sync_goal("dgx1", goal()))["kind"] == "docker"


# --- from a workspace ------------------------------------------------------------------------------------------------

TOML = 'kind = "docker"\nlock = "pins"\ndebs = ["libc6", "libstdc++6"]\nfiles = ["ranks.py", "../other/serve.py"]\n'
RECIPE = 'cluster = "{}"\nimage = "ranks"\nmodel_id = "m"\n[serve]\nruntime = "docker"\ncommand = ["x"]\nport = 8000\n'


def space(root: Path, toml: str = TOML) -> Path:
    urls = [f"{name}.artifact.url=http://deb.example.org/{name}_1_amd64.deb\n" for name in ("libc6", "libstdc++6")]
    hashes = [f"{name}.artifact.sha256={digit * 64}\n" for name, digit in (("libc6", "1"), ("libstdc++6", "2"))]
    put(
        root,
        "locks/pins.source.lock",
        FORMAT + "".join(urls + hashes) + f"m.artifact.url=http://x/m.gguf\nm.artifact.sha256={'3' * 64}\n",
    )
    put(root, "images/ranks/image.toml", toml)
    put(root, "images/ranks/ranks.py", "ranks")
    put(root, "images/other/serve.py", "serve")
    return root


def test_an_image_that_nobody_uses_can_be_assembled(tmp_path: Path) -> None:
    goals = assemble(load(space(tmp_path)))
    assert goals.problems == {}
    assert list(goals.by_task) == ["artifact:pins:libc6", "artifact:pins:libstdc++6", "image:ranks", "prune:local"]
    made = goals.by_task["image:ranks"]
    assert [need.task for need in made.needs] == ["artifact:pins:libc6", "artifact:pins:libstdc++6"]
    assert all(need.node == "local" for need in made.needs)
    assert made.spec.files == ("images/ranks/ranks.py", "images/other/serve.py")
    assert made.key.parts["file serve.py"] == hashlib.sha256(b"serve").hexdigest()
    assert {item.path for item in made.inputs} == set(made.spec.files)


def test_each_node_of_a_recipe_gets_the_image(tmp_path: Path) -> None:
    put(space(tmp_path), "config.toml", '[nodes.dgx1]\n[nodes.dgx2]\n[clusters.pair]\nnodes = ["dgx1", "dgx2"]\n')
    put(tmp_path, "recipes/r/recipe.toml", RECIPE.format("pair"))
    goals = assemble(load(tmp_path))
    assert goals.problems == {}
    syncs = [goals.by_task[f"sync:ranks:{node}"] for node in ("dgx1", "dgx2")]
    assert [str(one.uri) for one in syncs] == ["image://dgx1/ranks", "image://dgx2/ranks"]
    assert {one.needs for one in syncs} == {(goals.by_task["image:ranks"],)}
    assert list(goals.lanes["r"].needs) == syncs


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        (TOML.replace('"libc6"', '"libc7"'), "no artifact `libc7`"),
        (TOML.replace('"libc6"', '"libstdc++6"'), "`libstdc++6` is twice"),
        (TOML.replace('"libc6"', '"m"'), "`m` is no Debian package"),
        (TOML.replace("../other/serve.py", "../other/none.py"), "images/other/none.py does not exist"),
        (TOML.replace("../other/serve.py", "../../dodo.py"), "leads out of its folder"),
        (TOML.replace("../other/serve.py", "../other/../../x"), "leads out of its folder"),
        (TOML.replace("../other/serve.py", "../other/ranks.py"), "two files would both become files/ranks.py"),
        (TOML + 'requirements = "requirements.lock"\n', "requirements.lock does not exist"),
        (TOML + "imports = []\n", "`imports` is a key of kind venv, and this file is of kind docker"),
        (TOML + 'env = { "A=B" = "x" }\n', "`A=B` cannot be a name"),
        (TOML + 'platform = "linux/riscv64"\n', "`platform` does not fit"),
        ('kind = "docker"\nlock = "pins"\n', "there is nothing in the image"),
        (TOML.replace('"docker"', '"dokcer"'), "`kind` of the top level is not known"),
        (TOML.replace('kind = "docker"\n', ""), "`kind` is missing"),
    ],
)
def test_mistakes(tmp_path: Path, toml: str, text: str) -> None:
    problems = load(space(tmp_path, toml)).problems
    assert list(problems) == ["images/ranks"]
    assert text in str(problems["images/ranks"])
    assert problems["images/ranks"].where.startswith("images/ranks/image.toml:")


def test_a_name_that_docker_does_not_take(tmp_path: Path) -> None:
    space(tmp_path)
    (tmp_path / "images/ranks").rename(tmp_path / "images/Ranks")
    assert "cannot be the name of a docker image" in str(load(tmp_path).problems["images/Ranks"])
