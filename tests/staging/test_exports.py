"""Exports as goals: names and keys, verdicts from facts, and the whole way through a real agent after a real mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import mountlist
from sparkbuild.agent.wire.layout import EXPORT as FORMAT
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal, is_uri
from sparkbuild.core.run import Kind, Run
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.staging.blocks import Place, Staged, staged
from sparkbuild.staging.exports import Export, ExportKind, exports
from sparkbuild.staging.staged import StagedKind
from sparkbuild.workspace.shapes.stagingschema import ComposedExport, FilesStaging, HubStaging, TreeExport
from tests.staging.hubcache import REPO, TWO_HOP, usual

KIND: Kind[Any] = ExportKind()
TREE = TreeExport(id="model", target="/model", binds=("page15/*",))
PAGE = "page15/engram-01.bin"


def mirror(*made: TreeExport | ComposedExport, **changes: Any) -> HubStaging:
    fields = {"id": "weights", "src": "/mnt/nas/hub", "repos": (REPO,), "skip": ("page15/*",), "exports": made}
    return HubStaging(**{**fields, **changes})


def made(block: HubStaging, *others: FilesStaging, node: str = "dgx1") -> tuple[Export, ...]:
    place = Place("demo", node)
    blocks: dict[str, Staged] = {one.id: staged(one, place) for one in (block, *others)}
    return exports(block, place, blocks)


def goal(*args: Any, **changes: Any) -> Goal:
    return made(mirror(*(args or (TREE,)), **changes))[0].goal


def test_goal() -> None:
    (export,) = made(mirror(TREE))
    assert (export.id, export.block, export.target) == ("model", "weights", "/model")
    assert export.path == export.goal.spec.dst == "exported/demo/weights/model"
    assert export.goal.task == "stage:demo:dgx1:weights:model"
    assert str(export.goal.uri) == "export://dgx1/demo/weights/model"
    assert is_uri(str(export.goal.uri)), "doit takes it for a goal, and not for a file"
    assert [need.task for need in export.goal.needs] == ["stage:demo:dgx1:weights"]
    assert export.goal.key.parts == {
        "kind": "tree",
        "mirror": export.goal.needs[0].key.short,
        "subtree": "",
        "binds": ["page15/*"],
        "target": "/model",
        "format": FORMAT,
    }
    assert export.goal.spec.what == {
        "kind": "tree",
        "mirror": "staged/demo/weights/models--demo-org--demo-model",
        "target": "/model",
        "subtree": "",
        "binds": ["page15/*"],
        "source": {"cache": "/mnt/nas/hub", "repo": REPO, "revision": "main"},
    }


def test_format_in_the_key_is_the_one_the_agent_writes() -> None:
    assert FORMAT == mountlist.VERSION


def test_where_it_lies_is_not_what_it_is() -> None:
    moved = TreeExport(id="model", target="/model", binds=("page15/*",), path="/srv/models/exported")
    assert goal(moved).key == goal().key
    assert goal(src="/mnt/other/hub").key == goal().key
    for other in (
        goal(revision="b" * 40),
        goal(skip=()),
        goal(TreeExport(id="model", target="/draft", binds=("page15/*",))),
        goal(TreeExport(id="model", target="/model")),
        goal(TreeExport(id="model", target="/model", binds=("page15/*",), subtree="draft")),
    ):
        assert other.key != goal().key


def test_of_one_of_several_repositories() -> None:
    block = mirror(TreeExport(id="draft", target="/draft", repo="org/draft"), repos=(REPO, "org/draft"))
    (export,) = made(block)
    assert export.goal.spec.what["mirror"] == "staged/demo/weights/models--org--draft"
    assert [need.task for need in export.goal.needs] == ["stage:demo:dgx1:weights:draft"]


def rows(**changes: Any) -> FilesStaging:
    return FilesStaging(**{"id": "rows", "src": "/mnt/nas/rows", **changes})


def test_a_composed_folder_follows_from_what_is_laid_over() -> None:
    composed = ComposedExport(id="model", target="/model", over=("rows",))
    (export,) = made(mirror(composed), rows())
    assert export.goal.spec.what["over"] == ["staged/demo/rows"]
    assert [need.task for need in export.goal.needs] == ["stage:demo:dgx1:weights", "stage:demo:dgx1:rows"]
    assert list(export.goal.key.parts["over"]) == ["rows"]
    (other,) = made(mirror(composed), rows(members=("*.json",)))
    assert other.goal.key != export.goal.key


def test_a_rank_without_what_is_laid_over() -> None:
    with pytest.raises(ConfigError, match="wants block `rows`, which rank 0 has not"):
        made(mirror(ComposedExport(id="model", target="/model", over=("rows",))))


def fact(**changes: Any) -> dict[str, Any]:
    wanted = goal()
    whole = {"present": True, "key": wanted.key.digest, "parts": wanted.key.parts, "problems": []}
    return {**whole, "mounts": [{}, {}], "files": 7, "commit": "a" * 40, **changes}


@pytest.mark.parametrize(
    ("seen", "state", "texts"),
    [
        (fact(), "ok", []),
        ({"unreachable": "connection refused"}, "unknown", ["dgx1 does not answer: connection refused"]),
        ({"present": False, "busy": ""}, "run", ["not made yet"]),
        ({"present": False, "busy": "pid 7"}, "run", ["is being made by another process (pid 7)"]),
        ({"present": False, "busy": "", "problem": "the manifest is x"}, "run", ["the manifest is x"]),
        (fact(key="b" * 64, parts={**goal().key.parts, "target": "/m"}), "run", ["target: /m -> /model"]),
        (fact(problems=[{"file": "a", "text": "a is missing"}]), "run", ["a is missing"]),
    ],
)
def test_judge(seen: dict[str, Any], state: str, texts: list[str]) -> None:
    verdict = KIND.judge(goal(), seen, None)
    assert verdict.state == state
    assert [reason.text for reason in verdict.reasons] == texts
    assert verdict.told == ("7 files, 2 mounts" if state == "ok" else "")


def test_one_mount_is_one() -> None:
    verdict = KIND.judge(goal(), fact(mounts=[{}], files=1), None)
    assert verdict.told == "1 file, 1 mount"


def test_the_whole_way(tmp_path: Path) -> None:
    nas = usual(tmp_path / "nas")
    nas.add(PAGE, b"rows " * 1000, TWO_HOP)
    store = tmp_path / "store"
    store.mkdir()
    agent = LocalAgent("dgx1", str(store))
    run = Run(root=tmp_path, log=tmp_path / "step.log", agent=lambda _node: agent)

    def judged(kind: Kind[Any], wanted: Goal) -> Any:
        query = {"scheme": wanted.uri.scheme, **kind.query(wanted)}
        return kind.judge(wanted, agent.call("facts", {"queries": [query]})["facts"][0], None)

    wanted = goal(src=str(nas.root))
    (below,) = wanted.needs
    assert judged(KIND, wanted).state == "run"
    staging: Kind[Any] = StagedKind()
    staging.apply(below, judged(staging, below), run)
    assert KIND.apply(wanted, judged(KIND, wanted), run) == 0
    assert judged(KIND, wanted).told == "5 files, 2 mounts"
    assert judged(staging, below).state == "ok", "its files have two names now, and that is no problem"
    assert "4 linked" in (tmp_path / "step.log").read_text()
    folder = store / "exported/demo/weights/model"
    assert (folder / "config.json").read_bytes() == nas.files["config.json"]
    (folder / "config.json").unlink()
    assert [reason.text for reason in judged(KIND, wanted).reasons] == ["config.json is missing"]
    KIND.apply(wanted, judged(KIND, wanted), run)
    nas.root.rename(tmp_path / "moved")
    moved = goal(src=str(tmp_path / "moved"))
    (reason,) = judged(KIND, moved).reasons
    assert reason.text.startswith("it is made from "), "the binds lead to where the source was"
    KIND.apply(moved, judged(KIND, moved), run)
    assert judged(KIND, moved).state == "ok"
