"""A full disk is told as one, whatever the agent was about to write."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.agent import main
from sparkbuild.agent.image import gates
from sparkbuild.agent.image.buildkit import BuildKit
from sparkbuild.agent.wire.protocol import Reporter


@pytest.fixture
def no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - pytest makes it first
    """As on a full disk: none can be made, and Python calls that a missing folder."""

    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", refuse)


@pytest.mark.usefixtures("no_temporary_files")
def test_labels_need_no_temporary_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["sh", "-c", f"cat >{out}"]
    client: Any = SimpleNamespace(env={"PATH": "/usr/bin:/bin"}, build_command=lambda *_, **__: command)
    request = {"name": "x", "network": False, "args": {}, "secrets": {}, "epoch": 0}
    BuildKit(client, request, Reporter()).label("x:part", "x:1", {"a": "b"})
    assert b"FROM x:part\n" in out.read_bytes()


@pytest.mark.usefixtures("no_temporary_files")
@pytest.mark.parametrize(
    ("script", "ok", "text"), [("echo one; echo two", True, "one\ntwo"), ("seq 99999", True, "99999")]
)
def test_gates_need_no_temporary_file(tmp_path: Path, script: str, ok: bool, text: str) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    client: Any = SimpleNamespace(path=str(program), env={"PATH": "/usr/bin:/bin"})
    gate = {"id": "g", "command": ["x"], "expect": "", "timeout": 10.0, "env": {}}
    (found,) = gates.run_gates(client, "x", "x:part", [gate], Reporter())
    assert found["ok"] is ok
    assert found["text"].endswith(text)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_verb_that_meets_it_reports(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report goes to stdout, which is a pipe or an ssh channel and on no disk."""

    def run(_request: dict[str, Any], _reporter: Reporter) -> dict[str, Any]:
        raise OSError(number, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr(main, "_module", lambda _verb: SimpleNamespace(run=run, OWNS_STDIN=True))
    assert main.main(["stage"], json.dumps({"store": str(tmp_path)}).encode() + b"\n") == 1
    event = json.loads(capsys.readouterr().out)
    assert (event["event"], event["kind"]) == ("error", "space")
    assert "bytes free on /" in event["found"]
    assert event["what"].startswith("No space left" if number == errno.ENOSPC else "the disk quota of ")
