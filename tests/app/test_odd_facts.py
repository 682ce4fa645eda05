"""A node's odd answer about data, images, disks and networks is an error of that node, or a verdict in words: facts as
agents give them, mutated, held against their shapes, and read by all that reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sparkbuild.agent.wire.dockerimages import OWN_IMAGE, PREBUILT, PRUNED, EngineRoom, ImageFact
from sparkbuild.agent.wire.images import ARCHIVE, VENV_IMAGE, ArchiveFact
from sparkbuild.agent.wire.nodes import NETWORK, ROOM
from sparkbuild.agent.wire.receipts import GateResult
from sparkbuild.agent.wire.staging.exports import EXPORT as EXPORT_LOOK
from sparkbuild.agent.wire.staging.inventory import INVENTORY, ExportFolder, StagedFolder
from sparkbuild.agent.wire.staging.staged import STAGED as STAGED_LOOK
from sparkbuild.agent.wire.store import ARTIFACT
from sparkbuild.app import verification
from sparkbuild.app.space.room import needed
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import Step, Verdict
from sparkbuild.core.state import Made
from sparkbuild.images.archive import ArchiveKind
from sparkbuild.images.prebuilt import PrebuiltKind, PrebuiltSpec, prebuilt_goal
from sparkbuild.images.prune import UNUSED, PruneKind, PruneSpec
from sparkbuild.images.sync import SyncKind
from sparkbuild.nodes.ask import answer
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.relay.addresses import ways
from sparkbuild.serving.launch import fabric, network
from sparkbuild.staging import eviction
from sparkbuild.staging.exports import ExportKind
from sparkbuild.staging.staged import StagedKind
from sparkbuild.upstream.artifacts import ArtifactKind, ArtifactSpec, artifact_goal
from sparkbuild.workspace.locks.reference import Reference
from tests.app.test_odd_answers import ODD, Says, mutated, places
from tests.images import test_docker as docker, test_venv as venv
from tests.staging import test_exports as exported, test_staged as stage

Fact = dict[str, Any]
NOW = 1.7e9
REFUSED = {"kind": "config", "what": "w", "where": "/x", "found": "f", "wanted": "y", "next": "n", "part": "source"}
EVICTED = {"at": NOW, "for": "recipe beta"}
ABOUT = {"commit": "a" * 40, "repo": "x/y", "files": 3, "bytes": 5, "unread_tree": "no JSON", "unused_skip": ["*.x"]}
TABLES = {"rank": 0, "tables": {"1": {"ranges": [[0, 5]], "bytes": [10], "file": "x", "rows": 5, "shard": "s"}}}
ENGINE = EngineRoom(
    architecture="amd64", store="overlay2", root="/var/lib/docker", free=10**12, store_free=10**12, shared=False
)
GATE = GateResult(id="python", ok=True, seconds=1.0, text="")
IMAGE = ImageFact(present=True, layers=docker.LAYERS, bytes=5, architecture="amd64", pinned=False, engine=ENGINE)


def _absent(goal: Goal) -> list[Fact]:
    there = {"present": False, "busy": "", "refused": REFUSED}
    return [
        {**there, "problem": "the ledger is unreadable"},
        {**there, "busy": "pid 7"},
        {**there, "evicted": EVICTED, "about": ABOUT, "to_write": 5, "wanted": 10},
        {**there, "begun": True, "to_write": 5, "wanted": 10, "found": {"files": 1, "bytes": 5}, "beside": 0},
        {**there, "before": "/srv/old", "here": True, "about": TABLES, "to_write": None, "wanted": None},
        {**there, "before": "/srv/old", "here": False, "parts": goal.key.parts},
    ]


STAGED = stage.goal()
EXPORT = exported.goal()
WHOLE = {
    "present": True, "key": STAGED.key.digest, "bytes": 5, "about": ABOUT, "to_write": 0, "problems": [],
    "closed": "/x",
    "parts": STAGED.key.parts, "checked": {"bytes": 5, "chunks": 1, "whole": ["a"]}, "beside": 0,
}  # fmt: skip
FACTS: dict[str, list[Fact]] = {
    "staged": [
        WHOLE, {**WHOLE, "key": "b" * 64, "parts": {**STAGED.key.parts, "members": ["x"]}, "refused": REFUSED},
        {**WHOLE, "problems": [{"file": "a", "text": "a is damaged", "bytes": 5}], "refused": REFUSED},
        *_absent(STAGED),
    ],
    "export": [
        exported.fact(mounts=[{"source": "/x", "target": "/model", "read_only": True}]),
        exported.fact(key="b" * 64, parts={**EXPORT.key.parts, "target": "/m"}, mounts=[]),
        exported.fact(problems=[{"file": "a", "text": "a is missing"}], mounts=[], refused=REFUSED), *_absent(EXPORT),
    ],
    "archive": [
        ArchiveFact(present=True, layers=docker.LAYERS, bytes=5, gates=[GATE]),
        {"present": False, "problem": "its config is not what was written", "bytes": 5},
        {"present": False, "other": {"parts": docker.LAST.parts}, "engine": {"architecture": "amd64"}, "built": True},
    ],
    "sync": [
        IMAGE,
        {"present": False, "problem": "", "engine": ENGINE, "missing": docker.LAYERS, "arrived": 3},
        {"present": False, "silent": "no socket", "next": "start it"},
    ],
    "prebuilt": [
        IMAGE,
        {"present": False, "problem": "", "engine": ENGINE, "missing": docker.LAYERS, "pinned": True},
    ],
    "image": [fact for fact, *_ in venv.TABLE.values() if "unreachable" not in fact],
    "artifact": [{"present": True, "bytes": 5}, {"present": False, "problem": "it is damaged"}],
    "pruned": [
        {"old": [{"reference": "x:1", "bytes": 5}], "used": {"x:1": ["box"]}, "spared": ["x"], "cache": 5},
        {"silent": "no socket", "next": "start it", "absent": True},
    ],
    "inventory": [{
        "folders": [StagedFolder(
            dst="/srv/x", recipe="demo", block="weights", workspace="h:/w", exports=["/srv/e"], total=5, frees=5,
            kept=0, device="5", used="", busy="", problem="", staged_at=NOW, served_at=NOW, protect=False, bytes=5,
            adopted=False, present=True, mount="/", file_system="ext4", key="a" * 64, before="",
        )],
        "exports": [ExportFolder(
            dst="/srv/e", folders=["/srv/x"], recipe="demo", block="weights/model", workspace="h:/w", staged_at=NOW,
            served_at=NOW, bytes=0, adopted=False, mount="/", file_system="ext4", key="a" * 64, before="",
        )],
    }],
    "room": [{"rooms": {"/srv/x": {
        "exists": True, "free": 5, "total": 10, "device": "5", "held": 0, "problem": "",
    }}}],
    "network": [{
        "interfaces": [{"name": "eth0", "up": True, "speed_mbit": 1000,
                        "addresses": ["10.0.0.11/24"]}],
        "hcas": [{"name": "mlx5_0", "port": 1, "active": True, "interface": "eth0",
                  "gids": [{"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a00:000b", "type": "RoCE v2",
                            "ipv4": "10.0.0.11"}]}],
    }],
}  # fmt: skip
LOOKS = {
    "archive": ARCHIVE, "sync": OWN_IMAGE, "prebuilt": PREBUILT, "image": VENV_IMAGE, "artifact": ARTIFACT,
    "pruned": PRUNED, "network": NETWORK, "room": ROOM,
    "staged": STAGED_LOOK, "export": EXPORT_LOOK, "inventory": INVENTORY,
}  # fmt: skip


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Fact], object]]:
    """Who reads a fact of each kind; each gives what is told of it."""
    root = tmp_path_factory.mktemp("space")
    nodes = Nodes(root, {"local": Place("local", "store"), "dgx1": Place("ssh", "/srv/sparkbuild")})

    def judged(kind: Any, goal: Goal) -> Callable[[Fact], object]:
        last = Made("b" * 64, dict(goal.key.parts), 1.0, 2.0, 3, "run")

        def read(fact: Fact) -> object:
            told: list[object] = []
            for before in (None, last):
                verdict: Verdict = kind.judge(goal, fact, before)
                told += [verdict.told, *(reason.text for reason in verdict.reasons)]
                if hasattr(kind, "preflight") and not isinstance(kind, PrebuiltKind):
                    told.append(str(kind.preflight(goal, verdict)))
                if goal.uri.scheme == "staged":
                    room = {goal.target: {"free": 5, "total": 10, "device": "5", "held": 0}}
                    needed([Step(goal, verdict.state, verdict.reasons, verdict.bytes, verdict)], room)
            return told

        return read

    def looked(goal: Goal) -> Callable[[Fact], object]:
        row = judged(StagedKind() if goal is STAGED else ExportKind(), goal)
        return lambda fact: [row(fact), _row(goal, fact)]

    pinned = prebuilt_goal(
        "dgx1", PrebuiltSpec("base", Reference("docker.io", "library/busybox", "", "sha256:" + "a" * 64), ("dgx1",))
    )
    fixed = artifact_goal(
        "dgx1", "demo", "model", ArtifactSpec("model.whl", "a" * 64, "", "https://x.example/model.whl")
    )
    return {
        "staged": looked(STAGED),
        "export": looked(EXPORT),
        "archive": judged(ArchiveKind(str(root)), docker.goal()),
        "sync": judged(SyncKind(nodes), docker.sync_goal("dgx1", docker.goal())),
        "prebuilt": judged(PrebuiltKind(nodes, None), pinned),  # type: ignore[arg-type] # it brings nothing here
        "image": judged(venv.KIND, venv.goal()),
        "artifact": judged(ArtifactKind(str(root)), fixed),
        "pruned": judged(PruneKind(), _prune()),
        "inventory": lambda fact: [repr(one) for one in eviction.folders("dgx1", fact["folders"])],
        "room": lambda fact: [int(room["held"]) for room in fact["rooms"].values()],
        "network": _networks,
    }


def _row(goal: Goal, fact: Fact) -> object:
    row = verification.Row(goal.node, goal.task, "/srv/x", "")
    look = verification.looked if goal is STAGED else verification.linked
    return verification.lines([look(row, dict(goal.key.parts), goal.key.digest, fact)])


def _prune() -> Goal:
    spec = PruneSpec(keep=1, wanted=(), spared=(), prebuilt=False, builds=False, use=UNUSED)
    return Goal(task="prune:dgx1", uri=Uri("pruned", "dgx1", "images"), key=Key({}), doc="", spec=spec)


def _networks(fact: Fact) -> object:
    facts = {"dgx1": fact, "dgx2": FACTS["network"][0]}
    try:
        found: object = fabric.choose("pair", "", facts)
    except SparkbuildError as error:
        found = str(error)
    return [repr(found), repr(ways(fact, FACTS["network"][0])), repr(ways(FACTS["network"][0], fact)), network.__name__]


@pytest.mark.parametrize("kind", sorted(FACTS))
def test_the_facts_are_as_agents_give_them(kind: str, readers: dict[str, Callable[[Fact], object]]) -> None:
    for fact in FACTS[kind]:
        assert answer(Says(fact), "dgx1", {"scheme": LOOKS.get(kind, kind)}) == fact
        assert json.dumps(readers[kind](fact))


@pytest.mark.parametrize("kind", sorted(FACTS))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_odd_fact(kind: str, readers: dict[str, Callable[[Fact], object]], data: st.DataObject) -> None:
    fact: Any = data.draw(st.sampled_from(FACTS[kind]))
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(fact)))
        fact = mutated(fact, place, data.draw(ODD))
        if not isinstance(fact, dict):
            break
    try:
        checked = answer(Says(fact), "dgx1", {"scheme": LOOKS.get(kind, kind)})
    except NodeError:
        return  # it says which node, and what is odd: test_odd_answers.py
    assert json.dumps(readers[kind](checked))
