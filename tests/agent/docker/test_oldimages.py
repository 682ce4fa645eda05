"""Which images of ours may go: the newest of each name stay, what is wanted, and what a container was made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.docker.prune import observe, run
from sparkbuild.agent.wire.protocol import Reporter
from tests.agent.fake_docker import Engine, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Four images of `eng`, named in the order of their letters, one of `base`, and others' with names like ours."""
    with running(tmp_path) as up:
        for number, letter in enumerate("abcd"):
            up.image(letter, f"sparkbuild/eng:{letter * 12}", key=letter * 64, named=number)
        up.image("e", f"sparkbuild/base:{'e' * 12}", key="e" * 64)
        up.image("1", f"sparkbuild/eng:{'1' * 12}")
        up.image("2", "sparkbuild/eng:latest", key="2" * 64)
        up.image("3", f"team/eng:{'3' * 12}", key="3" * 64)
        yield up


def look(engine: Engine, *, keep: int = 2, wanted: tuple[str, ...] = (), spared: tuple[str, ...] = ()) -> Any:
    query = {"docker": engine.path, "keep": keep, "wanted": list(wanted), "spared": list(spared)}
    return observe(query)


def letters(fact: Any) -> str:
    return "".join(sorted(old["reference"][-1] for old in fact["old"]))


@pytest.mark.parametrize(
    ("keep", "wanted", "gone"),
    [
        (2, "", "ab"),
        (4, "", ""),
        (1, "", "abc"),
        (2, "d", "ab"),
        (2, "a", "bc"),
        (1, "a", "bcd"),
        (2, "f", "ab"),  # the wanted one has not come yet
    ],
)
def test_the_newest_stay_and_what_is_wanted(engine: Engine, keep: int, wanted: str, gone: str) -> None:
    fact = look(engine, keep=keep, wanted=tuple(f"sparkbuild/eng:{letter * 12}" for letter in wanted))
    assert letters(fact) == gone
    assert fact["used"] == {}


def test_what_a_container_uses_stays(engine: Engine) -> None:
    engine.add("c", "exited", name="box", ours=False)
    engine.containers[0]["ImageID"] = f"sha256:{'a' * 64}"
    fact = look(engine)
    assert letters(fact) == "b"
    assert fact["used"] == {f"sparkbuild/eng:{'a' * 12}": ["box"]}


def test_a_trial_that_a_lost_connection_left_holds_no_image_and_is_removed(engine: Engine) -> None:
    for letter, state in (("c", "created"), ("f", "exited")):  # the second is somebody's, whatever its label says
        engine.add(letter, state, name=f"box-{letter}", trial="x")
        engine.containers[-1]["ImageID"] = f"sha256:{'a' * 64}" if state == "created" else "sha256:x"
    assert letters(look(engine)) == "ab"
    done = run({"docker": engine.path, "keep": 2, "wanted": [], "spared": []}, Reporter())
    assert len(done["removed"]) == 2
    assert [box["State"] for box in engine.containers] == ["exited"]


def test_of_an_image_that_cannot_be_read_nothing_goes(engine: Engine) -> None:
    fact = look(engine, spared=("eng", "base"))
    assert (fact["old"], fact["spared"]) == ([], ["eng"])


def test_removing(engine: Engine) -> None:
    request = {"docker": engine.path, "keep": 2, "wanted": [], "spared": []}
    done = run(request, Reporter())
    assert done == {"removed": [f"sparkbuild/eng:{'b' * 12}", f"sparkbuild/eng:{'a' * 12}"]}
    assert letters(look(engine)) == ""
    assert len(engine.images) == 6


def test_no_docker_is_told_from_one_that_does_not_answer(engine: Engine, tmp_path: Path) -> None:
    none = observe({"docker": str(tmp_path / "none"), "keep": 2, "wanted": [], "spared": []})
    assert none["absent"] is True
    assert "not installed or not running" in none["silent"]
    engine.broken = True
    assert look(engine)["absent"] is False
