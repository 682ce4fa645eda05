"""Which images of ours may go: the newest of each name stay, what is wanted, and what a container was made of."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.image.prune import observe, run
from sparkbuild.agent.wire.dockerimages import PrunedQuery
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


def asked(docker: str, **changes: Any) -> PrunedQuery:
    query = PrunedQuery(store="", docker=docker, keep=2, wanted=[], spared=[], prebuilt=False, builds=False)
    return {**query, **changes}  # type: ignore[typeddict-item]


def look(engine: Engine, *, keep: int = 2, wanted: tuple[str, ...] = (), spared: tuple[str, ...] = ()) -> Any:
    return observe(asked(engine.path, keep=keep, wanted=list(wanted), spared=list(spared)))


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
    done = run(asked(engine.path), Reporter())
    assert len(done["removed"]) == 2
    assert [box["State"] for box in engine.containers] == ["exited"]


def test_of_an_image_that_cannot_be_read_nothing_goes(engine: Engine) -> None:
    fact = look(engine, spared=("eng", "base"))
    assert (fact["old"], fact["spared"]) == ([], ["eng"])


def test_removing(engine: Engine) -> None:
    done = run(asked(engine.path), Reporter())
    assert done == {"removed": [f"sparkbuild/eng:{'b' * 12}", f"sparkbuild/eng:{'a' * 12}"], "freed": 0}
    assert letters(look(engine)) == ""
    assert len(engine.images) == 6


def test_no_docker_is_told_from_one_that_does_not_answer(engine: Engine, tmp_path: Path) -> None:
    none = observe(asked(str(tmp_path / "none")))
    assert none["absent"] is True
    assert "not installed or not running" in none["silent"]
    engine.broken = True
    assert look(engine)["absent"] is False


def of_a_registry(engine: Engine, letters: str) -> list[str]:
    """Images of one repository under our name for each digest; these names, the oldest first."""
    made = []
    for number, letter in enumerate(letters):
        made.append(f"sparkbuild/vllm-{letter * 8}:{letter * 12}")
        engine.image(letter, made[-1], digest=f"ghcr.io/team/vllm@sha256:{letter * 64}", named=number)
    return made


def test_images_of_a_registry_are_old_by_their_repository(engine: Engine) -> None:
    made = of_a_registry(engine, "6789")
    query = asked(engine.path, wanted=[made[0]], spared=["eng"], prebuilt=True)
    assert [old["reference"] for old in observe(query)["old"]] == [made[2], made[1]], "the wanted one counts"
    assert observe({**query, "prebuilt": False})["old"] == []


def test_an_image_of_a_registry_goes_with_what_was_made_of_it(engine: Engine, tmp_path: Path) -> None:
    made = of_a_registry(engine, "6789")
    by_hand = next(one for one in engine.images if made[0] in one["RepoTags"])
    by_hand["RepoTags"].append("team/vllm:mine")
    folders = [tmp_path / "archives" / name.partition("/")[2].partition(":")[0] for name in made]
    for folder in folders:
        folder.mkdir(parents=True)
    request = asked(engine.path, store=str(tmp_path), spared=["eng"], prebuilt=True)
    assert run(request, Reporter())["removed"] == [made[1], made[0]]
    assert by_hand["RepoTags"] == ["team/vllm:mine"]
    assert by_hand["RepoDigests"], "what somebody gave a name of his own stays as it is"
    assert not [one for one in engine.images if one["Id"].endswith("7" * 64)]
    assert [folder.exists() for folder in folders] == [False, False, True, True]


def test_old_build_cache_goes_on_build_nodes(engine: Engine) -> None:
    week = 7 * 24 * 3600
    ages = {"a": 2 * week, "b": week / 2, "c": 2 * week, "d": 2 * week}
    for name, age in ages.items():
        used = datetime.fromtimestamp(time.time() - age, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")
        engine.cache.append({"ID": name, "Size": 1000, "LastUsedAt": used, "InUse": name == "c", "Shared": name == "d"})
    request = asked(engine.path, keep=4, builds=True)
    assert observe({**request, "builds": False})["cache"] == 0
    assert observe(request)["cache"] == 1000
    assert run(request, Reporter()) == {"removed": [], "freed": 1000}
    last = urllib.parse.unquote(engine.asked[-1])
    assert last == '/build/prune?all=1&filters={"until": ["604800s"]}'
