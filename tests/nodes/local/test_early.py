"""This machine's agent, asked before it is known what will be asked: the answer counts for just that question."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.wire.frames import WINDOW
from sparkbuild.nodes.local import process as local_process
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.nodes.local.early import Early
from sparkbuild.nodes.rpc import process as rpc_process
from tests.workspace_tool import is_alive, until

ASK = {"queries": [{"scheme": "artifact", "sha256": "a" * 64, "filename": "x.whl"}]}
COMMAND = ["plan"]


class Run:
    """One command in a workspace: its early agent, and the connection that takes it."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.early = Early(str(folder / "state"), command)
        self.agent = LocalAgent("dgx1", str(folder / "store"), self.early)
        self.begun = self.early._running
        process = self.begun.process if self.begun else self.early.process
        assert process is not None
        self.pid: int = process._desk.pipes._process.pid  # type: ignore[attr-defined]

    def answer(self, request: dict[str, Any] | None = None) -> Any:
        return self.agent.call("facts", request or ASK)["facts"]


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    kept: list[Run] = []
    yield kept
    for run in kept:
        run.agent.close()
        run.early.close()


def run(runs: list[Run], folder: Path, command: list[str] | None = None) -> Run:
    runs.append(Run(folder, command or COMMAND))
    return runs[-1]


def test_the_same_question_is_answered_by_what_was_asked_early(runs: list[Run], tmp_path: Path) -> None:
    first = run(runs, tmp_path)
    assert first.begun is None, "nothing is known of an earlier run"
    absent = first.answer()
    again = run(runs, tmp_path)
    assert again.begun is not None
    until(lambda: not is_alive(again.pid))
    assert again.answer() == absent
    assert again.agent._process is None, "nothing else was asked"
    assert again.answer() == absent, "asked anew, of an agent that takes more requests"
    assert again.agent._process is not None


def test_an_answer_that_is_longer_than_what_may_be_on_its_way(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {"queries": [{"scheme": "node"}] * 40}
    assert len(json.dumps(run(runs, tmp_path).answer(many))) > 3 * 2000
    for module in (local_process, rpc_process):
        monkeypatch.setattr(module, "WINDOW", 2000)
    again = run(runs, tmp_path)
    time.sleep(0.5)  # more has come than may
    assert len(again.answer(many)) == 40
    assert again.agent._process is None, "nothing else was asked"


@pytest.mark.parametrize("taken", [True, False])
def test_one_that_was_asked_ends_with_its_command(runs: list[Run], tmp_path: Path, *, taken: bool) -> None:
    run(runs, tmp_path).answer()
    again = run(runs, tmp_path)
    if taken:
        again.answer()
    again.early.close()
    until(lambda: not is_alive(again.pid))


def test_another_question_is_asked_anew_and_kept(runs: list[Run], tmp_path: Path) -> None:
    run(runs, tmp_path).answer()
    other = {"queries": [{"scheme": "node"}, *ASK["queries"]]}
    changed = run(runs, tmp_path)
    assert len(changed.answer(other)) == 2
    (kept,) = (tmp_path / "state/asked").iterdir()
    assert json.loads(kept.read_bytes())["queries"] == other["queries"]


def test_each_command_line_has_its_own_and_old_ones_go(runs: list[Run], tmp_path: Path) -> None:
    for number in range(18):
        run(runs, tmp_path, ["plan", f"serve:r{number}"]).answer()
        runs.pop().agent.close()
    assert len(list((tmp_path / "state/asked").iterdir())) == 16


@pytest.mark.parametrize(
    "text", [b"", b"artifact\n", b"{no json}\n", b"{" * WINDOW, b"\xff\xfe\n{}\n", b"{}\n", b'{"queries":7}\n']
)
def test_a_damaged_question_costs_only_time(runs: list[Run], tmp_path: Path, text: bytes) -> None:
    wanted = run(runs, tmp_path).answer()
    (kept,) = (tmp_path / "state/asked").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(text)
    assert run(runs, tmp_path).answer() == wanted
    assert kept.read_bytes() == whole, "and is written anew"


def test_a_folder_that_cannot_be_written_to(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/asked").write_text("in the way")
    assert run(runs, tmp_path).answer() == run(runs, tmp_path).answer()


def test_one_that_nobody_takes_is_ended(runs: list[Run], tmp_path: Path) -> None:
    left = run(runs, tmp_path)
    assert is_alive(left.pid)
    left.early.close()
    until(lambda: not is_alive(left.pid))
