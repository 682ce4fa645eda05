"""Which node reads the source, and which takes the bytes from another one; what is said of a source."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparkbuild.core.plan import OK, RUN, UNKNOWN, Step, Verdict
from sparkbuild.staging import words
from sparkbuild.staging.blocks import Place, staged
from sparkbuild.staging.routes import SOURCE, repeated, routes
from sparkbuild.workspace.shapes.stagingschema import HubStaging, RowsStaging, Staging

MIRROR = HubStaging(id="weights", src="/srv/models/hub", repos=("org/one",))
ROWS = RowsStaging(id="rows", src="/srv/models/hub", repos=("org/one",))


def steps(states: str, block: Staging = MIRROR) -> list[Step]:
    """One step for each node dgx1, dgx2, ...: `r` is stale, `o` right, `u` silent."""
    found = []
    for rank, letter in enumerate(states):
        (goal,) = staged(block, Place("big", f"dgx{rank + 1}", rank, len(states))).goals
        state = {"r": RUN, "o": OK, "u": UNKNOWN}[letter]
        found.append(Step(goal, state, (), 10, Verdict(state)))
    return found


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ("r", [SOURCE]),
        ("rrr", [SOURCE, "dgx1", "dgx2"]),
        ("orr", ["dgx1", "dgx2"]),
        ("rro", ["dgx3", "dgx1"]),
        ("ur", [SOURCE]),
        ("oo", []),
    ],
)
def test_one_reads_the_source_and_the_others_take_it_from_there(states: str, wanted: list[str]) -> None:
    assert list(routes(steps(states), {}).values()) == wanted


def test_a_node_outside_of_the_plan_that_has_it() -> None:
    made = steps("r")
    assert list(routes(made, {made[0].goal.key.digest: ["dgx7"]}).values()) == ["dgx7"]


def on_one_node(*folders: str, states: str = "rr") -> list[Step]:
    """One step for each folder, all of them on dgx1."""
    found = []
    for name, folder, letter in zip("abc", folders, states, strict=False):
        (goal,) = staged(msgspec.structs.replace(MIRROR, dst=folder), Place(f"recipe-{name}", "dgx1")).goals
        state = {"r": RUN, "o": OK}[letter]
        found.append(Step(goal, state, (), 10, Verdict(state)))
    return found


@pytest.mark.parametrize(("states", "wanted"), [("rr", [SOURCE, "dgx1"]), ("or", ["dgx1"]), ("ro", ["dgx1"])])
def test_two_folders_of_one_node(states: str, wanted: list[str]) -> None:
    made = on_one_node("/srv/models/a", "/srv/models/b", states=states)
    assert list(routes(made, {}).values()) == wanted


def test_its_own_node_comes_before_others() -> None:
    made = steps("rr") + on_one_node("/srv/models/b")
    assert list(routes(made, {}).values()) == [SOURCE, "dgx1", "dgx1"]


def test_one_folder_of_two_recipes_is_made_once() -> None:
    made = on_one_node("/srv/models/a", "/srv/models/a/", states="rr")
    assert repeated(made) == {made[1].goal.target: made[0].goal}
    assert routes(made, {}) == {made[0].goal.target: SOURCE}


def test_rows_are_of_one_rank_alone() -> None:
    assert list(routes(steps("rrr", ROWS), {}).values()) == [SOURCE] * 3


def test_a_table() -> None:
    table = {
        "rows": 384006168,
        "ranges": [[0, 96001542], [96001542, 192003084]],
        "shard": "model-00047-of-00048.safetensors",
        "file": "engram-l1-r1of4.bin",
        "bytes": [25344411184, 25344411184],
    }
    (line,) = words.lines({"rank": 1, "tables": {"1": table}})
    assert line.startswith("layer 1: rows [96001542, 192003084) of 384006168 in model-00047-of-00048.safetensors ->")
    assert line.endswith("-> engram-l1-r1of4.bin, 25,344,411,184 bytes")


def test_a_mirror() -> None:
    found: dict[str, Any] = {"repo": "org/one", "commit": "dba1be0a40aa" + "0" * 28, "ref": "main", "files": 88}
    found |= {"bytes": 510313353565, "skipped": {"files": 30}, "unused_skip": ["*.pt"]}
    assert words.lines(found) == [
        "org/one: main is dba1be0a40aa, 88 files, 510.3 GB; 30 skipped; nothing matches skip = '*.pt'"
    ]


def test_nothing_known() -> None:
    assert words.lines({}) == []
