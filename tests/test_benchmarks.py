"""Every benchmark runs, in its smallest form, on ports of its own; and says at which commit."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rack import needs

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
ALONE = ["beside", "many_goals", "second_serve", "staging"]
ON_A_RACK = ["cluster", "image_sync", "staging_chain"]


def smallest(name: str, cache: Path, folder: Path, *words: str) -> str:
    """What it prints."""
    env = {**os.environ, "SPARKBUILD_TEST_CACHE": str(cache), "TMPDIR": str(folder)}
    argv = [sys.executable, str(FOLDER / f"{name}.py"), "--smallest", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.startswith("measured at commit ")
    assert not list(folder.iterdir()), "nothing is left"
    return done.stdout


def test_every_benchmark_is_here() -> None:
    parts = {"image_ways", "needs", "staging_copy", "staging_look", "staging_memory", "staging_tools"}
    assert {path.stem for path in FOLDER.glob("*.py")} == {*ALONE, *ON_A_RACK, *parts}


@pytest.mark.parametrize("name", ALONE)
def test_its_smallest_form(name: str, test_cache: Path, tmp_path: Path) -> None:
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # somebody has it: as good
            other.bind(("127.0.0.1", 8431))
            other.listen()
        smallest(name, test_cache, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ON_A_RACK)
def test_its_smallest_form_on_a_rack(name: str, test_cache: Path, tmp_path: Path) -> None:
    if problem := needs.lacking():
        pytest.skip(problem)
    smallest(name, test_cache, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lacks nothing but what is taken away here")
@pytest.mark.parametrize("name", ON_A_RACK)
def test_what_it_lacks_is_said_before_it_begins(name: str) -> None:
    env = {**os.environ, "PATH": "/nowhere"}
    # the rack's needs are looked for in the system's folders too: another user is what it cannot have
    argv = ["/usr/bin/setpriv", "--reuid=65534", "--clear-groups", sys.executable, str(FOLDER / f"{name}.py")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    if "Permission" in done.stderr:
        pytest.skip("another user may not read this checkout")
    assert done.returncode == 2, done
    assert "a rack needs root" in done.stderr
    assert done.stdout == ""
