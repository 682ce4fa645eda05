"""The command that downloads the wheels of a docker image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.image import wheels
from sparkbuild.agent.wire.protocol import Reporter


def test_the_requirements_are_its_last_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There pip() reads what is to come; anything else there was "No such file or directory" for the whole image."""
    seen: list[list[str]] = []
    monkeypatch.setattr(wheels, "pip", lambda argv, *_: seen.append(argv))
    nothing: Any = None
    wheels.add_wheels(nothing, "", python="3.11", architecture="amd64", work=str(tmp_path), reporter=Reporter())
    assert seen[0][-2] == "-r"
    assert os.path.isfile(seen[0][-1])
