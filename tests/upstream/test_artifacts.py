"""Artifacts, decided from facts alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparkbuild.agent.store import fetch
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.core.run import Kind
from sparkbuild.core.state import Made
from sparkbuild.upstream.artifacts import ArtifactKind, ArtifactSpec, Origin, artifact_goal, path_in_store

SHA = "ab" * 32
SPEC = ArtifactSpec(filename="model-1.0-py3-none-any.whl", sha256=SHA, wheel="model==1.0", url="")
KIND: Kind[Any] = ArtifactKind("/srv/space")


def goal(node: str = "dgx1", **changes: Any) -> Goal:
    return artifact_goal(node, "demo", "weights", msgspec.structs.replace(SPEC, **changes))


LAST = Made(key=goal().key.digest, parts=goal().key.parts, at=1.0, seconds=1.0, bytes=900, run="r")

TABLE: dict[str, tuple[dict[str, Any], Made | None, str, list[tuple[str, str]], int | None]] = {
    "there": ({"present": True, "bytes": 900}, LAST, OK, [], 0),
    "there, fetched by somebody else": ({"present": True, "bytes": 900}, None, OK, [], 0),
    "node down": ({"unreachable": "refused"}, LAST, UNKNOWN, [("node", "dgx1 does not answer: refused")], None),
    "never": ({"present": False, "bytes": 0}, None, RUN, [("content", "not fetched yet")], None),
    "gone": ({"present": False, "bytes": 0}, LAST, RUN, [("content", "was fetched before, is gone")], 900),
    "other content": (
        {"present": False, "bytes": 900, "problem": "its content is not what is pinned"},
        LAST,
        RUN,
        [("content", "its content is not what is pinned")],
        900,
    ),
    "not to be read": (
        {"present": False, "problem": "PermissionError: x"},
        None,
        RUN,
        [("content", "PermissionError: x")],
        None,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    seen, last, state, reasons, size = TABLE[name]
    verdict = KIND.judge(goal(), seen, last)
    assert (verdict.state, verdict.bytes) == (state, size)
    assert [(reason.part, reason.text) for reason in verdict.reasons] == reasons


def test_the_goal() -> None:
    made = goal()
    assert str(made.uri) == "artifact://dgx1/demo/weights"
    assert made.task == "artifact:demo:weights"
    assert made.transient, "not fetched again when what was made from it is complete"
    assert made.doc == "fetch model==1.0 as pinned in the lock"


def test_the_content_decides_not_where_it_comes_from() -> None:
    assert goal(wheel="", url="https://example.org/model-1.0-py3-none-any.whl").key == goal().key
    assert goal(node="dgx2").key == goal().key
    assert goal(others=(Origin("https://example.org/a.whl", "recipes/a/recipe.toml"),)).key == goal().key
    assert goal(sha256="cd" * 32).key != goal().key


@pytest.mark.parametrize("filename", ["model.gguf", "../../etc/passwd", "a b.whl"])
def test_both_sides_agree_on_where_it_lies(filename: str) -> None:
    spec = msgspec.structs.replace(SPEC, filename=filename)
    path = path_in_store(spec)
    assert fetch.path_of("/srv/store", SHA, filename) == f"/srv/store/{path}"
    assert path.startswith(f"artifacts/ab/{SHA}/")
    assert ".." not in path
