"""Rules of the rooms that read sources, over their code: who decides what a file is, and who asks a file system."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sparkbuild.agent import facts

ROOT = Path(__file__).resolve().parents[1] / "sparkbuild/agent"
FILES = sorted(path for room in ("source", "hub", "rows") for path in (ROOT / room).glob("*.py"))
TIMES = {"st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns"}
ASKS = {"open", "listdir", "readlink", "stat", "scandir", "walk"}  # of os; lstat is for what is staged
# May ask, and say why: all of it goes through nas.patient, or is of this machine.
MAY_ASK = {"source/source.py", "source/localdir.py"}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_one_place_decides_which_version_a_source_is(path: Path) -> None:
    found = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)} & TIMES
    assert not found or named(path) == "source/versions.py", f"{named(path)} looks at {found}: see source/versions.py"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_source_is_asked_with_patience_and_blamed_by_its_name(path: Path) -> None:
    asked = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "os"
    }
    found = asked & ASKS
    assert not found or named(path) in MAY_ASK, f"{named(path)} calls os.{found}: see disk/nas.py"


def test_a_look_at_a_folder_that_somebody_named_is_bounded() -> None:
    """Its disk may hang, and then nothing that a thread of ours does comes back."""
    for scheme, module in facts.OBSERVERS.items():
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        asks = 'query["dst"]' in text or "entry.dst" in text
        assert not asks or scheme in facts.ON_DISKS or "patience.bounded(" in text, f"{module}: see facts.ON_DISKS"
