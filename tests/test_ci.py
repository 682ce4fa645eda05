"""The scripts of .ci/: bash takes them, what they name exists, and no test is in neither tier."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tomli

from tests import layers

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file())


def shown(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=shown)
def test_bash_takes_it(path: Path) -> None:
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck here: apt-get install shellcheck")
@pytest.mark.parametrize("path", SCRIPTS, ids=shown)
def test_shellcheck_takes_it(path: Path) -> None:
    done = subprocess.run(["shellcheck", "-x", path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=shown)
def test_tests_that_are_named_exist(path: Path) -> None:
    for name, words in re.findall(r"(tests/[\w/]*)(?:\{([\w,]+)\}\.py)?", path.read_text()):
        for word in words.split(",") if words else [""]:
            found = list(ROOT.glob(f"{name}{word}.py" if word else f"{name.rstrip('/')}*"))
            assert found, f"{name}{word}"


def test_an_unknown_step_is_refused() -> None:
    """Before anything is fetched or run: the steps are looked at first."""
    done = subprocess.run([ROOT / ".ci/long", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "no step nonsense: there are long, parsers, engines\n"
    assert done.stdout == ""


def test_a_landing_leaves_out_the_long_tests_and_nothing_else() -> None:
    options = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert "not long" in options["addopts"]
    assert [marker.partition(":")[0] for marker in options["markers"]] == ["long", *layers.LAYERS]


def test_every_docker_test_of_the_rack_runs_on_all_engines() -> None:
    """A file that needs docker on its nodes is one of the long tier's, or of what the landing runs alone."""
    text = (ROOT / ".ci/long").read_text()
    for word in ("build", "build_base", "build_sync", "sync", "sync_command", "prebuilt", "relay", "docker_images"):
        assert re.search(rf"[{{,]{word}[,}}]", text), word
    assert "tests/rack/test_lane_*.py" in text


def test_every_parser_has_its_long_form() -> None:
    assert "--hypothesis-profile=long tests/parsers\n" in (ROOT / ".ci/long").read_text()
