"""Lanes, decided from facts alone: what is right, what is not and why, and which steps would make it right."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.core.state import Made
from sparkbuild.serving.judge import judge, steps
from sparkbuild.serving.lane import LaneSpec, lane_goal, launch_parts
from sparkbuild.workspace.shapes.schema import SmokeGate

GATE = SmokeGate(id="copy", prompt="Say 42.", expect="42")
SPEC: dict[str, Any] = {
    "recipe": "demo",
    "folder": "recipes/demo",
    "command": ("{{ image.python }}", "-m", "engine", "--port", "{{ port }}"),
    "env": {"OMP_NUM_THREADS": "1"},
    "secrets": ("HF_TOKEN",),
    "port": 8000,
    "model_id": "smollm2",
    "ready_timeout": 60.0,
    "stop_grace": 5.0,
    "protect": False,
    "image": "images/llamacpp/0123",
    "staged": {"weights": "staged/demo/weights"},
    "lock": "demo@1234",
    "gates": (GATE,),
}
ALL = ("launch", "ready", "gates")
AGAIN = ("stop", *ALL)


def below(scheme: str, path: str, content: str = "1") -> Goal:
    return Goal(task=path, uri=Uri(scheme, "dgx1", path), key=Key({"content": content}), doc="")


def goal(
    *, image: str = "1", weights: str = "1", inputs: tuple[Input, ...] = (), cluster: str = "one", **changes: Any
) -> Goal:
    return lane_goal(
        cluster,
        ("dgx1",),
        LaneSpec(**{**SPEC, **changes}),
        images=[below("image", "llamacpp", image)],
        staged=[{"weights": (below("staged", "demo/weights", weights),)}],
        inputs=inputs,
    )


def record(of: Goal | None = None, **changes: Any) -> dict[str, Any]:
    """The record of a lane that was served as `of` says."""
    wanted = of or goal()
    served = {
        "key": wanted.key.digest,
        "parts": wanted.key.parts,
        "pid": 77,
        "model_id": "smollm2",
        "host": "127.0.0.1",
        "port": 8000,
        "protect": False,
        "ready": {"seconds": 2.0, "ttft": 0.1, "text": "hello"},
        "gates": [{"id": "copy", "ok": True}],
        "served_at": 1000.0,
        "stopped_at": None,
    }
    return {**served, **changes}


def fact(of: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A healthy running lane, unless changed."""
    seen = {"record": of or record(), "alive": True, "listening": True, "answers": True, "served_ids": ["smollm2"]}
    return {**seen, "port_holder": None, **changes}


def dead(of: dict[str, Any], *lines: str) -> dict[str, Any]:
    return {"record": of, "alive": False, "listening": False, "answers": False, "last_lines": list(lines)}


LAST = Made(key=goal().key.digest, parts=goal().key.parts, at=1.0, seconds=1.0, bytes=0, run="r")
NEVER = {"record": None, "alive": False, "listening": False, "answers": False, "port_holder": None}
OTHER_GATES = goal(gates=(SmokeGate(id="copy", prompt="Say 43.", expect="43"),))
FAILED = [{"id": "copy", "ok": False}, {"id": "tool", "ok": True}, {"id": "sum", "ok": False}]

# name: fact, last, reasons (part, text), steps
TABLE: dict[str, tuple[dict[str, Any], Made | None, list[tuple[str, str]], tuple[str, ...]]] = {
    "served": (fact(), LAST, [], ()),
    "never": (NEVER, None, [("lane", "not served yet")], ALL),
    "record lost": (NEVER, LAST, [("lane", "was served before, its record is gone")], ALL),
    "stopped": (
        dead(record(stopped_at=1700000000.0), "bye"),
        LAST,
        [("lane", "was stopped at 2023-11-14 22:13:20 UTC")],
        ALL,
    ),
    # after a reboot the pid may be another's: the agent compares the boot id and says that the lane is not alive
    "died, or the node was started anew": (
        dead(record(boot_id="before"), "loading", "  CUDA error: out of memory ", ""),
        LAST,
        [
            (
                "lane",
                "process 77 is gone without having been stopped; last line of its log: CUDA error: out of memory",
            )
        ],
        ALL,
    ),
    "died without a word": (
        dead(record(), "", " "),
        LAST,
        [("lane", "process 77 is gone without having been stopped")],
        ALL,
    ),
    "died, and the recipe was edited": (
        dead(record(goal(port=9000)), "x"),
        LAST,
        [
            ("lane", "process 77 is gone without having been stopped; last line of its log: x"),
            ("port", "port: 9000 -> 8000"),
        ],
        ALL,
    ),
    "interrupted before it was ready": (
        fact(record(ready=None, gates=None, served_at=None), answers=False, listening=False, served_ids=[]),
        None,
        [("ready", "process 77 runs, but was not ready when last looked at")],
        ("ready", "gates"),
    ),
    "does not listen": (
        fact(listening=False, answers=False, served_ids=[]),
        LAST,
        [("answers", "process 77 runs, but does not listen")],
        ("ready", "gates"),
    ),
    "hangs": (
        fact(answers=False, problem="no answer on port 8000: timed out", served_ids=[]),
        LAST,
        [("answers", "process 77 runs, but no answer on port 8000: timed out")],
        ("ready", "gates"),
    ),
    "another model": (
        fact(served_ids=["llama", "qwen"]),
        LAST,
        [("model_id", "model id: llama, qwen -> smollm2")],
        ("ready", "gates"),
    ),
    "one of several ids": (fact(served_ids=["llama", "smollm2"]), LAST, [], ()),
    "gates not run": (
        fact(record(gates=None, served_at=None)),
        None,
        [("gates", "gates not passed yet")],
        ("gates",),
    ),
    "gates failed": (
        fact(record(gates=FAILED, served_at=None)),
        None,
        [("gates", "gates failed: copy, sum")],
        ("gates",),
    ),
    "gates edited": (
        fact(record(OTHER_GATES)),
        LAST,
        [("gates", "gates: ")],
        ("gates",),
    ),
    "the port edited": (fact(record(goal(port=9000))), LAST, [("port", "port: 9000 -> 8000")], AGAIN),
    "an argument edited": (
        fact(record(goal(command=(*SPEC["command"][:-1], "9000")))),
        LAST,
        [("command", 'command: ["--port","9000"] -> ["--port","{{ port }}"]')],
        AGAIN,
    ),
    "a variable edited": (
        fact(record(goal(env={"OMP_NUM_THREADS": "8"}))),
        LAST,
        [("env", 'env: {"OMP_NUM_THREADS":"8"} -> {"OMP_NUM_THREADS":"1"}')],
        AGAIN,
    ),
    "another image": (
        fact(record(goal(image="2"))),
        LAST,
        [("image", f"image: {goal(image='2').key.parts['image']} -> {goal().key.parts['image']}")],
        AGAIN,
    ),
    "other weights": (fact(record(goal(weights="2"))), LAST, [("staged", "staged: ")], AGAIN),
    "no longer protected": (
        fact(record(protect=True)),
        LAST,
        [("protect", "protect: true -> false")],
        ("protect",),
    ),
    "the port is another's": (
        {**NEVER, "port_holder": {"pid": 5, "command": "python -m http.server", "user": "ann"}},
        None,
        [("lane", "not served yet"), ("port", "port 8000 is held by process 5 of ann")],
        ALL,
    ),
    "the port is another lane's": (
        {**dead(record(), "x"), "port_holder": {"pid": 5, "command": "x", "user": "ann", "lane": "other"}},
        LAST,
        [
            ("lane", "process 77 is gone without having been stopped; last line of its log: x"),
            ("port", "port 8000 is held by lane other (process 5 of ann): doit stop:other"),
        ],
        ALL,
    ),
    "moved to a port that is hidden from us": (
        fact(record(goal(port=9000)), port_holder={"pid": 0, "command": "a process of another user", "user": ""}),
        LAST,
        [("port", "port: 9000 -> 8000"), ("port", "port 8000 is held by a process of another user")],
        AGAIN,
    ),
    "protected, and edited": (
        fact(record(goal(port=9000), protect=True)),
        LAST,
        [("port", "port: 9000 -> 8000"), ("protect", "the running lane is protected: doit stop:demo first")],
        AGAIN,
    ),
    "protected, and its gates edited": (
        fact(record(OTHER_GATES, protect=True)),
        LAST,
        [("gates", "gates: ")],
        ("gates",),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    seen, last, reasons, _ = TABLE[name]
    verdict = judge(goal(), seen, last)
    assert verdict.state == (RUN if reasons else OK)
    assert [reason.part for reason in verdict.reasons] == [part for part, _ in reasons]
    for reason, (_, text) in zip(verdict.reasons, reasons, strict=True):
        assert reason.text.startswith(text) if text.endswith(": ") else reason.text == text
    assert verdict.fact is seen, "what is applied goes by what was judged"
    assert verdict.bytes == 0


@pytest.mark.parametrize("name", TABLE)
def test_steps(name: str) -> None:
    seen, _, _, todo = TABLE[name]
    assert steps(goal(), seen) == todo


@pytest.mark.parametrize("name", TABLE)
def test_there_is_a_step_for_every_reason_and_none_without_one(name: str) -> None:
    seen, last, _, _ = TABLE[name]
    assert bool(steps(goal(), seen)) == (judge(goal(), seen, last).state == RUN)


def test_protection_asked_for_since_the_launch() -> None:
    wanted = goal(protect=True)
    assert judge(wanted, fact(record(protect=True)), LAST).state == OK
    assert steps(wanted, fact()) == ("protect",)
    assert [reason.text for reason in judge(wanted, fact(), LAST).reasons] == ["protect: false -> true"]
    edited = judge(wanted, fact(record(goal(port=9000))), LAST)
    assert edited.reasons[-1].text == "the running lane is protected: doit stop:demo first"


def test_forcing_starts_what_runs_anew_and_what_does_not_once() -> None:
    assert steps(goal(), fact(), force=True) == AGAIN
    assert steps(goal(), NEVER, force=True) == ALL
    assert steps(goal(), dead(record()), force=True) == ALL


def test_a_node_that_does_not_answer() -> None:
    verdict = judge(goal(), {"unreachable": "no route to host"}, LAST)
    assert verdict.state == UNKNOWN
    assert verdict.bytes is None
    assert [reason.text for reason in verdict.reasons] == ["dgx1 does not answer: no route to host"]


def test_launch_parts_are_all_but_what_can_be_checked_on_a_running_lane() -> None:
    parts = goal().key.parts
    assert set(parts) - set(launch_parts(parts)) == {"gates"}
    assert launch_parts(parts) == launch_parts(OTHER_GATES.key.parts)


CHANGES: dict[str, dict[str, Any]] = {
    "command": {"command": ("engine",)},
    "env": {"env": {}},
    "secrets": {"secrets": ()},
    "port": {"port": 8001},
    "model_id": {"model_id": "other"},
    "gates": {"gates": ()},
    "image": {"image": "2"},
    "staged": {"weights": "2"},
    "files": {"inputs": (Input("recipes/demo/chat.jinja", "c" * 64),)},
}


@pytest.mark.parametrize("part", CHANGES)
def test_what_changes_the_key(part: str) -> None:
    old, new = goal().key.parts, goal(**CHANGES[part]).key.parts
    assert [name for name in new if new[name] != old[name]] == [part]


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": "another"},
        {"ready_timeout": 1.0, "stop_grace": 1.0},
        {"protect": True},
        {"lock": "demo@9999"},
        {"staged": {"weights": "/srv/elsewhere"}},
    ],
)
def test_what_does_not_change_the_key(changes: dict[str, Any]) -> None:
    assert goal(**changes).key == goal().key


def test_the_order_of_files_does_not_change_the_key() -> None:
    files = (Input("recipes/demo/a.txt", "a" * 64), Input("recipes/demo/b.txt", "b" * 64))
    assert goal(inputs=files).key == goal(inputs=files[::-1]).key


def test_files_of_one_name_in_two_folders_are_two_files() -> None:
    one, two = Input("recipes/demo/a/x.txt", "a" * 64), Input("recipes/demo/b/x.txt", "b" * 64)
    assert goal(inputs=(one, two)).key.parts["files"] == {"a/x.txt": "a" * 64, "b/x.txt": "b" * 64}
    assert goal(inputs=(one, two)).key != goal(inputs=(Input("recipes/demo/a/x.txt", "c" * 64), two)).key


def test_the_goal() -> None:
    made = goal()
    assert str(made.uri) == "lane://one/demo"
    assert made.task == "serve:demo"
    assert made.pools == ("dgx1",)
    assert [str(need.uri) for need in made.needs] == ["image://dgx1/llamacpp", "staged://dgx1/demo/weights"]


def test_what_is_wanted_of_memory_is_said_and_ends_nothing() -> None:
    """It is a condition of the launch: a lane that runs is right, whatever a next launch would need."""
    wanted = goal(min_memory=100_000_000_000)
    assert wanted.key == goal().key
    verdict = judge(wanted, fact(record(goal())), None)
    assert verdict.state == "ok"
    assert verdict.told.endswith("; min_memory = 100.0 GB counts at the next launch")
    assert "min_memory" not in judge(goal(), fact(record(goal())), None).told
