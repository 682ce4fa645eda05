"""Images of kind `venv`, decided from facts alone: the goal's key, and what is right or wrong with what is there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.core.goal import Goal, Input
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made
from sparkbuild.images import venv
from sparkbuild.images.venv import VenvKind, VenvSpec, folder_in_store, image_goal
from sparkbuild.workspace.load import load
from tests.workspace.helpers import IMAGE, healthy, put

SPEC = VenvSpec(
    name="llamacpp",
    lock="demo",
    requirements="images/llamacpp/requirements.lock",
    files=("images/llamacpp/serve.py", "images/llamacpp/gates/gate.py"),
    imports=("xllamacpp",),
    python="3.10",
)
CONTENT = {"images/llamacpp/requirements.lock": "1", "images/llamacpp/serve.py": "2", SPEC.files[1]: "3"}
KIND: Kind[Any] = VenvKind("/srv/space")


def goal(node: str = "dgx1", content: dict[str, str] | None = None, **changes: Any) -> Goal:
    inputs = tuple(Input(path, digit * 64) for path, digit in {**CONTENT, **(content or {})}.items())
    return image_goal(node, msgspec.structs.replace(SPEC, **changes), inputs)


def test_the_goal() -> None:
    made = goal()
    assert str(made.uri) == "image://dgx1/llamacpp"
    assert made.task == "image:llamacpp"
    assert made.pools == ("build",)
    assert made.key.parts == {
        "kind": "venv",
        "requirements": "1" * 64,
        "file serve.py": "2" * 64,
        "file gate.py": "3" * 64,
        "imports": ["xllamacpp"],
        "python": ">=3.10",
        "builder": venv.BUILDER,
    }
    assert folder_in_store(made) == f"images/llamacpp/{made.key.short}"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"content": {"images/llamacpp/requirements.lock": "9"}}, "requirements"),
        ({"content": {"images/llamacpp/serve.py": "9"}}, "file serve.py"),
        ({"imports": ("xllamacpp", "numpy")}, "imports"),
        ({"python": "3.12"}, "python"),
    ],
)
def test_what_changes_the_key(changes: dict[str, Any], part: str) -> None:
    old, new = goal().key.parts, goal(**changes).key.parts
    assert [name for name in new if new[name] != old[name]] == [part]
    assert goal(**changes).key != goal().key


def test_a_file_more_or_less_changes_the_key() -> None:
    assert goal(files=SPEC.files[:1]).key != goal().key


def test_where_and_in_which_order_files_lie_does_not_change_the_key() -> None:
    assert goal(node="dgx2").key == goal().key
    assert goal(files=SPEC.files[::-1]).key == goal().key
    assert goal(lock="renamed").key == goal().key
    inputs = tuple(Input(path, digit * 64) for path, digit in CONTENT.items())
    assert image_goal("dgx1", SPEC, inputs[::-1]).key == goal().key
    moved = {path: path.replace("images/llamacpp", "/elsewhere/images/other") for path in CONTENT}
    spec = msgspec.structs.replace(
        SPEC, requirements=moved[SPEC.requirements], files=tuple(moved[path] for path in SPEC.files), name="other"
    )
    elsewhere = tuple(Input(moved[path], digit * 64) for path, digit in CONTENT.items())
    assert image_goal("dgx1", spec, elsewhere).key == goal().key


def test_no_part_of_a_key_is_a_path_of_this_machine(tmp_path: Path) -> None:
    """Two checkouts of one workspace in two folders give one key."""
    keys = []
    for name in ("one", "two"):
        root = healthy(tmp_path / name)
        put(root, "images/eng/serve.py", "serve")
        put(root, "images/eng/image.toml", IMAGE + 'files = ["serve.py"]\n')
        image = load(root).images["eng"]
        files = tuple(f"{image.dir}/{file}" for file in image.spec.files)
        spec = VenvSpec("eng", "eng", f"{image.dir}/requirements.lock", files, (), "3.10")
        made = image_goal("local", spec, image.inputs)
        assert str(tmp_path) not in repr(made.key.parts)
        keys.append(made.key)
    assert keys[0] == keys[1]


LAST = Made(key=goal().key.digest, parts=goal().key.parts, at=1.0, seconds=30.0, bytes=500, run="r")
EDITED = goal(content={"images/llamacpp/serve.py": "9"}, python="3.9").key.parts

# name: fact, last, state, reasons (part, beginning of the text), bytes
TABLE: dict[str, tuple[dict[str, Any], Made | None, str, list[tuple[str, str]], int | None]] = {
    "right": ({"present": True, "bytes": 500, "python": "3.11.7"}, LAST, OK, [], 0),
    "node down": ({"unreachable": "refused"}, LAST, UNKNOWN, [("node", "dgx1 does not answer: refused")], None),
    "never": ({"present": False, "other": None}, None, RUN, [("image", "not built yet")], None),
    "gone": ({"present": False, "other": None}, LAST, RUN, [("image", "was built before, is gone")], 500),
    "a file changed": (
        {"present": False, "problem": "lib/x.py is not as it was built", "other": None},
        LAST,
        RUN,
        [("content", "lib/x.py is not as it was built")],
        500,
    ),
    "damaged, and another one is there": (
        {"present": False, "problem": "its interpreter (Python 3.11.2) is gone", "other": {"parts": EDITED}},
        None,
        RUN,
        [("content", "its interpreter (Python 3.11.2) is gone")],
        None,
    ),
    "edited since the one on the node": (
        {"present": False, "other": {"parts": EDITED}},
        LAST,
        RUN,
        [("file serve.py", "file serve.py: 9999"), ("python", "python: >=3.9 -> >=3.10")],
        500,
    ),
    "edited since it was made, and gone": (
        {"present": False, "other": None},
        msgspec.structs.replace(LAST, parts=EDITED),
        RUN,
        [("file serve.py", "file serve.py: 9999"), ("python", "python: >=3.9 -> >=3.10")],
        500,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    seen, last, state, reasons, size = TABLE[name]
    verdict = KIND.judge(goal(), seen, last)
    assert (verdict.state, verdict.bytes) == (state, size)
    assert [reason.part for reason in verdict.reasons] == [part for part, _ in reasons]
    assert all(reason.text.startswith(text) for reason, (_, text) in zip(verdict.reasons, reasons, strict=True))


def test_it_is_looked_for_by_its_whole_key() -> None:
    assert KIND.query(goal()) == {"name": "llamacpp", "key": goal().key.digest}


class Told:
    """An agent that keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []

    def call(self, verb: str, request: Any, on_event: Any = None, *, final: bool = False) -> dict[str, Any]:
        del on_event, final
        self.requests.append((verb, request))
        return {"bytes": 7}


def test_what_the_agent_is_asked_to_build_is_what_the_key_names(tmp_path: Path) -> None:
    texts = {path: f"content of {path}" for path in CONTENT}
    for path, text in texts.items():
        put(tmp_path, path, text)
    inputs = tuple(Input(path, hashlib.sha256(text.encode()).hexdigest()) for path, text in texts.items())
    wanted, agent = image_goal("dgx1", SPEC, inputs), Told()
    run = Run(root=tmp_path, log=tmp_path / "log", agent=lambda _node: agent)
    assert VenvKind(str(tmp_path)).apply(wanted, Verdict(RUN), run) == 7
    (verb, request), *more = agent.requests
    assert (verb, more) == ("venv", [])
    assert request["key"] == wanted.key.digest
    sent = {"requirements": request["requirements"]} | {f"file {name}": text for name, text in request["files"].items()}
    named = {name: wanted.key.parts[name] for name in sent}
    assert {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sent.items()} == named
