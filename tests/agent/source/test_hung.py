"""A NAS that hangs: a file system whose server takes every question and gives no answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.disk import nas, patience
from sparkbuild.agent.stage import verify
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import finish, key, request_for, stage_here, start
from tests.agent.exports import Site
from tests.hungfs import hangs


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    with hangs(tmp_path / "nas") as folder:
        yield folder


def request(hung: Path, tmp_path: Path) -> dict[str, object]:
    what = {"kind": "folder", "path": str(hung / "model"), "members": [], "skip": []}
    return {"store": str(tmp_path), "dst": str(tmp_path / "dst"), "key": key(), "parts": {}, "what": what}


SHORT = """
import sparkbuild.agent.disk.patience as patience
patience.TELL, patience.LOOK, patience.WORK = 0.3, 1.0, 1.5
"""


def test_a_plan_gives_it_up_and_says_what_does_not_answer(
    hung: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LOOK", 0.5)
    monkeypatch.setattr(patience, "_given_up", [])
    began = time.monotonic()
    fact = verify.observe(request(hung, tmp_path))
    assert time.monotonic() - began < 5
    said = fact["refused"]
    assert (said["part"], said["kind"], said["where"]) == ("source", "node", str(hung / "model"))
    assert said["what"] == "the file system of the source does not answer"


def test_the_agent_ends_though_a_thread_of_it_hangs(hung: Path, tmp_path: Path) -> None:
    query = {"scheme": "staged", **request(hung, tmp_path)}
    process = start("facts", {"store": str(tmp_path), "queries": [query, query]}, shim=SHORT)
    began = time.monotonic()
    answer = finish(process)
    assert time.monotonic() - began < 20
    facts = answer.last["facts"]
    assert [fact["refused"]["what"] for fact in facts] == ["the file system of the source does not answer"] * 2


def test_a_staging_tells_and_then_ends(hung: Path, tmp_path: Path) -> None:
    answer = finish(start("stage", request(hung, tmp_path), shim=SHORT))
    assert (answer.code, answer.last["kind"], answer.last["where"]) == (1, "node", str(hung / "model"))
    assert f"waiting for the file system of {hung}/model" in answer.logs
    assert "ctrl-C leaves it" in answer.logs
    assert any("waiting for" in event.get("phase", "") for event in answer.events)


def test_a_look_at_staged_data_gives_its_disk_up(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored()
    site.made(site.composed())
    query = {"scheme": "staged", "dst": str(site.mirror), "key": key("b")}
    other = {"scheme": "export", "full": True, **site.request(site.composed())}
    with hangs(site.store / "staged"):
        began = time.monotonic()
        answer = finish(start("facts", {"store": str(site.store), "queries": [query, other]}, shim=SHORT))
        assert time.monotonic() - began < 10
    staged, export = answer.last["facts"]
    assert staged["hung"]["what"] == "the file system of staged data does not answer"
    assert staged["hung"]["where"].startswith(str(site.mirror))
    assert export["hung"]["where"].startswith(str(site.store / "staged"))


@pytest.mark.parametrize("verb", ["verify", "scrub"])
def test_a_verification_tells_and_then_ends(tmp_path: Path, verb: str) -> None:
    site = Site(tmp_path)
    site.mirrored()
    request = {"store": str(site.store), "dst": str(site.mirror), "key": key("b")}
    with hangs(site.store / "staged"):
        began = time.monotonic()
        answer = finish(start(verb, {**request, "folders": [request]}, shim=SHORT))
        assert time.monotonic() - began < 10
    assert (answer.code, answer.last["kind"]) == (1, "node")
    assert answer.last["where"].startswith(str(site.mirror))
    assert f"waiting for the file system of {site.mirror}" in answer.logs


def test_the_disk_that_hangs_in_the_middle(tmp_path: Path) -> None:
    """The readers of a check are threads of their own: what they wait for is known too."""
    shim = (
        SHORT
        + """
import time, sparkbuild.agent.disk.pages as pages
read = pages.Pages.read
def slow(self, view, offset):
    if offset >= 8 << 20: time.sleep(30)
    return read(self, view, offset)
pages.Pages.read = slow
"""
    )
    (tmp_path / "big.bin").write_bytes(os.urandom(40 << 20))
    request = request_for(tmp_path / "dst", {"big.bin": tmp_path / "big.bin"})
    stage_here(request)
    query = {"scheme": "staged", "dst": str(tmp_path / "dst"), "key": request["key"], "full": True}
    began = time.monotonic()
    answer = finish(start("facts", {"store": str(tmp_path), "queries": [query]}, shim=shim))
    assert time.monotonic() - began < 15
    assert answer.last["facts"][0]["hung"]["where"] == str(tmp_path / "dst/big.bin")


def test_an_export_with_binds_gives_its_source_up(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored("page15/*")
    query = {"scheme": "export", "keys": [key("b")], **site.request(site.tree("page15/*"))}
    early = {**query, "keys": [key("c")]}  # its mirror is to be staged first: the cache tells of the snapshot
    with hangs(site.nas.root):
        began = time.monotonic()
        facts = finish(start("facts", {"store": str(site.store), "queries": [query, early]}, shim=SHORT))
        made = finish(start("linktree", site.request(site.tree("page15/*")), shim=SHORT))
        assert time.monotonic() - began < 15
    assert [fact["refused"]["what"] for fact in facts.last["facts"]] == [
        "the file system of the source does not answer"
    ] * 2
    assert (made.code, made.last["kind"]) == (1, "node")
    assert made.last["where"].startswith(str(site.nas.root))
    assert not site.dst.exists() or not any(site.dst.rglob("mounts.json"))


def test_what_answers_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many questions that each are answered in time take all the time they need."""
    monkeypatch.setattr(patience, "LOOK", 0.3)
    monkeypatch.setattr(patience, "_given_up", [])

    def look() -> int:
        return sum(nas.patient(f"/nas/{number}", lambda: time.sleep(0.1) or 1) for number in range(8))

    assert patience.bounded(look) == 8
    with pytest.raises(AgentError, match="does not answer"):
        patience.bounded(lambda: nas.patient("/nas/x", lambda: time.sleep(1)))
