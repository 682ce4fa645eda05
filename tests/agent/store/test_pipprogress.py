"""How far pip is, by what it prints and by the files that it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.agent.store.pipprogress import PipProgress

WHEEL = "xllamacpp-0.2.0-cp311-cp311-manylinux_2_17_x86_64.whl"


def sized(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_a_wheel_that_pip_copies_is_counted_once_and_has_a_total(tmp_path: Path) -> None:
    """Pip downloads into its own folder, then copies: with both counted it was at 176 of 92.9 MB."""
    state = PipProgress(1)
    assert state.amount(str(tmp_path)) == (0, None)
    state.line(f"  Downloading {WHEEL} (92.9 MB)")
    sized(tmp_path / "pip-unpack-x" / WHEEL, 40_000_000)
    assert state.amount(str(tmp_path)) == (40_000_000, 92_900_000)
    sized(tmp_path / "pip-unpack-x" / WHEEL, 92_870_000)
    sized(tmp_path / WHEEL, 80_000_000)
    assert state.amount(str(tmp_path)) == (92_870_000, 92_900_000)


def test_no_total_before_every_package_is_named(tmp_path: Path) -> None:
    state = PipProgress(3)
    state.line("  Downloading a-1-py3-none-any.whl (1.5 MB)")
    assert state.amount(str(tmp_path)) == (0, None)
    state.line("  Using cached b-1-py3-none-any.whl (10 kB)")
    state.line("  Downloading c-1-py3-none-any.whl.metadata (2.0 kB)")
    assert state.amount(str(tmp_path)) == (0, None)
    state.line("  Downloading https://files.example/c-1-py3-none-any.whl (500 bytes)")
    assert state.amount(str(tmp_path)) == (0, 1_500_500)


@pytest.mark.parametrize("line", ["", "Downloading", "  Downloading x (?? MB)", "Downloading x (1e9 MB)", "\x1b[0m"])
def test_other_lines_say_nothing(tmp_path: Path, line: str) -> None:
    state = PipProgress(1)
    state.line(line)
    assert state.amount(str(tmp_path)) == (0, None)
    assert not state.installs
    state.line("Installing collected packages: a, b")
    assert state.installs
