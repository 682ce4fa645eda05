"""A library that a module wants and that is not here: said whole, with the package that brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparkbuild.agent.image import libraries


def said(name: str) -> str:
    """What Python says of a library that is not there."""
    code = f"import ctypes; ctypes.CDLL({name!r})"
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("libsparkbuild-none.so.3", "the package that brings libsparkbuild-none.so.3, on Debian: apt-file search"),
        ("libnvidia-none.so.1", "libnvidia-none.so.1 comes with NVIDIA's driver"),
    ],
)
def test_what_the_loader_says(name: str, advice: str) -> None:
    assert advice in libraries.advice(said(name))


def test_the_package_is_named() -> None:
    text = "ImportError: libgomp.so.1: cannot open shared object file: No such file or directory"
    assert "apt-get install libgomp1, which brings libgomp.so.1" in libraries.advice(text)
    assert libraries.advice("ImportError: No module named x") == ""


def test_the_end_begins_with_a_whole_line() -> None:
    text = "\n".join(f"line {number} {'x' * 100}" for number in range(40))
    assert libraries.last_lines(text).startswith("line 28 x")
