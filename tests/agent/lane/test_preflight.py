"""What would keep a launch from working: paths, devices, ports, peers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sparkbuild.agent.lane import preflight
from tests.agent.driver import call


def ask(**query: Any) -> dict[str, Any]:
    answer = call("facts", {"store": "/", "queries": [{"scheme": "preflight", **query}]})
    assert answer.code == 0, answer.events
    fact: dict[str, Any] = answer.last["facts"][0]
    return fact


def test_all_is_well(tmp_path: Path) -> None:
    fact = ask(paths=[str(tmp_path)], devices=["/dev/null", "/dev"], peers=["127.0.0.1"])
    assert fact.pop("memory_available") > 0
    assert all(not value for value in fact.values()), fact


def test_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file, none = str(tmp_path / "file"), str(tmp_path / "none")
    fact = ask(paths=[none, file], devices=[file, none, "/dev/null"])
    assert fact["missing"] == [none]
    assert fact["devices_missing"] == [none]
    assert fact["not_devices"] == [file]


def test_an_empty_question_is_fine() -> None:
    assert ask()["missing"] == []


def test_peers() -> None:
    assert preflight.unreachable(["127.0.0.1", "127.0.0.2"], 1.0) == [], "that nobody listens there is an answer"
    began = time.monotonic()
    found = preflight.unreachable(["dgx2", "10.0.0.300", "", "127.0.0.1"], 1.0)
    assert time.monotonic() - began < 10
    assert found == [
        {"peer": "dgx2", "problem": "'dgx2' is no IPv4 address"},
        {"peer": "10.0.0.300", "problem": "'10.0.0.300' is no IPv4 address"},
        {"peer": "", "problem": "'' is no IPv4 address"},
    ]
