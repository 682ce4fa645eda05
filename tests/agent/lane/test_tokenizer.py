"""A tokenizer of a node, sent to who benches from another machine: whole, or refused with what is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.bench import harness
from sparkbuild.bench.target import BenchTarget
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.run import Run
from sparkbuild.nodes.rpc.reply import error_of
from tests.agent.driver import call


class Node:
    """The real agent, as a process, in the place of that of another machine."""

    def call(self, verb: str, request: Any, on_event: Any = None, *, final: bool = False) -> dict[str, Any]:
        del final
        answer = call(verb, dict(request))
        for event in answer.events[:-1]:
            on_event(event)
        if answer.code:
            raise error_of("dgx1", answer.last)
        return answer.last


def fetched(source: Path, scratch: Path, node: str = "dgx1") -> str:
    scratch.mkdir()
    run = Run(root=scratch, log=scratch / "log", agent=lambda _node: Node())
    target = BenchTarget("http://h:1", "m", "/py", "/files", node=node)
    return harness.fetched(str(source), target, scratch, run)


def test_a_folder(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    content = {"tokenizer.json": os.urandom(1_000_000), "tokenizer_config.json": b"{}", "config.json": b"{}"}
    for name, data in {**content, "model.safetensors": b"no tokenizer"}.items():
        (model / name).write_bytes(data)
    found = Path(fetched(model, tmp_path / "scratch"))
    assert {path.name: path.read_bytes() for path in found.iterdir()} == content


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    found = Path(fetched(tmp_path / "tokenizer.json", tmp_path / "scratch"))
    assert (found.name, found.read_text()) == ("tokenizer.json", "{}")


def test_of_this_machine_it_is_used_as_it_is(tmp_path: Path) -> None:
    assert fetched(tmp_path / "x.gguf", tmp_path / "scratch", node="") == str(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("name", "found"),
    [("gone", "no such file"), ("folder", "a folder without tokenizer.json"), ("x.gguf", "a file of another kind")],
)
def test_none(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").touch()
    (tmp_path / "x.gguf").touch()
    with pytest.raises(ConfigError, match="the tokenizer for the throughput bench is missing") as told:
        fetched(tmp_path / name, tmp_path / "scratch")
    assert told.value.found == found
    assert told.value.where == f"node dgx1, {tmp_path / name}"
