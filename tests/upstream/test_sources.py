"""Sources, decided from facts alone; and what is in their key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparkbuild.agent.git import exported
from sparkbuild.core.goal import Goal, Input
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.core.run import Kind
from sparkbuild.core.state import Made
from sparkbuild.upstream.sources import SourceKind, SourceSpec, SubmoduleSpec, path_in_store, source_goal

SPEC = SourceSpec("eng", "engine", "https://git.example.org/e.git", "main", "c" * 40, "d" * 40, 5)
SUB = SubmoduleSpec("sub", "https://git.example.org/s.git", "1" * 40, "2" * 40)
KIND: Kind[Any] = SourceKind("/srv/space")


def goal(node: str = "dgx1", **changes: Any) -> Goal:
    return source_goal(node, msgspec.structs.replace(SPEC, **changes))


LAST = Made(key=goal().key.digest, parts=goal().key.parts, at=1.0, seconds=1.0, bytes=900, run="r")
OTHER = Made(key="0" * 64, parts=goal(tree="e" * 40).key.parts, at=1.0, seconds=1.0, bytes=900, run="r")

TABLE: dict[str, tuple[dict[str, Any], Made | None, str, list[str], int | None]] = {
    "there": ({"present": True, "bytes": 900, "files": 3}, LAST, OK, [], 0),
    "node down": ({"unreachable": "refused"}, LAST, UNKNOWN, ["dgx1 does not answer: refused"], None),
    "never": ({"present": False, "bytes": 0}, None, RUN, ["not fetched yet"], None),
    "gone": ({"present": False, "bytes": 0}, LAST, RUN, ["was exported before, is gone"], 900),
    "another": ({"present": False, "bytes": 0}, OTHER, RUN, [f"tree: {'e' * 12} -> {'d' * 12}"], None),
    "changed": (
        {"present": False, "bytes": 900, "problem": "its content is not"},
        LAST,
        RUN,
        ["its content is not"],
        900,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str):
    seen, last, state, reasons, size = TABLE[name]
    verdict = KIND.judge(goal(), seen, last)
    assert (verdict.state, verdict.bytes) == (state, size)
    assert [reason.text for reason in verdict.reasons] == reasons


def test_the_goal():
    made = goal(patches=(Input("p.diff", "f" * 64),))
    assert (made.task, str(made.uri)) == ("source:eng:engine", "source://dgx1/eng/engine")
    assert made.transient
    assert made.inputs == (Input("p.diff", "f" * 64),)
    assert KIND.query(made) == {"key": made.key.digest, "pins": [("c" * 40, 5)]}
    assert KIND.query(goal(submodules=(SUB,)))["pins"] == [("c" * 40, 5), ("1" * 40, 0)]
    folder = exported.folder_of("/store", made.key.digest)
    assert f"/store/{path_in_store(made)}" == f"{folder}/{exported.ARCHIVE}"


@pytest.mark.parametrize(
    "same",
    [{"commit": "a" * 40}, {"repository": "file:x"}, {"ref": "v1"}, {"time": 9}, {"component": "x"}, {"lock": "x"}],
)
def test_a_rebase_to_the_same_content_is_the_same_source(same: dict[str, Any]):
    assert goal(**same).key == goal().key


@pytest.mark.parametrize(
    "other", [{"tree": "a" * 40}, {"tree": ""}, {"submodules": (SUB,)}, {"patches": (Input("p", "f" * 64),)}]
)
def test_other_content_is_another(other: dict[str, Any]):
    assert goal(**other).key != goal().key


def test_without_a_tree_the_commit_counts():
    assert goal(tree="").key != goal(tree="", commit="a" * 40).key
    assert goal(submodules=(SUB,)).key == goal(submodules=(msgspec.structs.replace(SUB, commit="9" * 40),)).key
