"""On a whole .venv doitw adds nothing: same arguments, same exit code, same process, wherever it is called from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doitw.conftest import Project

AWKWARD = ["two words", "", '"quoted"', "it's", "*", "$HOME", "back\\slash", "line\nbreak", "`id`", "äö", "-n", " "]


def seen(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_arguments_arrive_as_they_were_given(ready: Project) -> None:
    (program,) = ready.folder.glob(".venv/lib/python3*/site-packages/doit/__main__.py")
    kept = program.read_bytes()
    # doit itself breaks on an empty argument
    program.write_text("import sys\n\n\ndef main():\n    print(*sys.argv, sep='\\0', end='')\n")
    try:
        assert ready.run(*AWKWARD).stdout.split("\0") == ["doit", *AWKWARD]
        assert ready.run().stdout == "doit", "no argument is no argument"
    finally:
        program.write_bytes(kept)


def test_a_ctrl_c_while_doit_is_loaded_says_nothing(ready: Project) -> None:
    """Python's own answer would be a traceback out of whatever is imported at that moment."""
    (program,) = ready.folder.glob(".venv/lib/python3*/site-packages/doit/__main__.py")
    kept = program.read_bytes()
    program.write_text("import time\nprint('loads', flush=True)\ntime.sleep(60)\n")
    try:
        for words in (["show"], ["--version"]):
            process = ready.start(*words)
            assert process.stdout is not None
            if words != ["--version"]:
                assert process.stdout.readline() == "loads\n"
            else:  # what doit prints is taken in
                time.sleep(1.0)
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=20)
            assert told == ""
            assert process.returncode in {-signal.SIGINT, 128 + signal.SIGINT}
    finally:
        program.write_bytes(kept)


def test_the_current_folder_is_no_place_to_import_from(ready: Project) -> None:
    stray = ready.folder / "site.py"
    stray.write_text("raise SystemExit('imported')\n")
    try:
        assert ready.run("show").returncode == 0
    finally:
        stray.unlink()


def test_nothing_is_said_and_nothing_is_made(ready: Project) -> None:
    before = ready.stamp()
    done = ready.run("show")
    assert done.stderr == ""
    assert ready.stamp() == before


@pytest.mark.parametrize("code", [0, 3, 130])
def test_exit_code(ready: Project, code: int) -> None:
    assert ready.run("show", "leave", str(code)).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_doit_takes_the_place_of_the_shell_so_signals_reach_it(ready: Project, number: signal.Signals) -> None:
    process = ready.start("show", "wait")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["pid"] == process.pid
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode in {-number, 128 + number}


def test_from_another_folder(ready: Project, tmp_path: Path) -> None:
    by_path = subprocess.run(
        [os.path.relpath(ready.folder / "doitw", tmp_path), "show"],
        cwd=tmp_path,
        env=ready.env | {"CDPATH": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen(by_path)["cwd"] == str(ready.folder)
    assert by_path.stderr == ""


def test_through_a_link_to_the_script_and_to_the_folder(ready: Project, tmp_path: Path) -> None:
    before = ready.stamp()
    (tmp_path / "run").symlink_to(ready.folder / "doitw")
    (tmp_path / "again").symlink_to("run")
    (tmp_path / "there").symlink_to(ready.folder)
    for script in ("again", "there/doitw"):
        done = subprocess.run(
            [tmp_path / script, "show"], cwd="/", env=ready.env, capture_output=True, text=True, check=False
        )
        assert seen(done)["cwd"] == str(ready.folder)
    assert ready.stamp() == before


def test_found_on_path(ready: Project) -> None:
    env = ready.env | {"PATH": f"{ready.folder}:{ready.env['PATH']}"}
    done = subprocess.run(["doitw", "show"], cwd="/", env=env, capture_output=True, text=True, check=False)
    assert seen(done)["cwd"] == str(ready.folder)


def test_as_if_the_venv_was_activated(ready: Project) -> None:
    wrapped = seen(ready.run("show"))
    activated = subprocess.run(
        ["sh", "-c", ". .venv/bin/activate && exec doit show"],
        cwd=ready.folder,
        env=ready.env,
        capture_output=True,
        text=True,
        check=False,
    )
    plain = seen(activated)
    assert {**wrapped, "pid": 0} == {**plain, "pid": 0}


def test_starts_no_program_but_two_comparisons(ready: Project, tmp_path: Path) -> None:
    for name in ("readlink", "dirname", "python3", "flock", "date", "sha256sum", "cat", "sed", "grep"):
        fake = tmp_path / name
        fake.write_text(f"#!/bin/sh\necho {name} was started >&2\nexit 1\n")
        fake.chmod(0o755)
    assert ready.run("show", env={"PATH": f"{tmp_path}:{ready.env['PATH']}"}).stderr == ""


def test_the_version_is_that_of_sparkbuild_and_of_doit(ready: Project) -> None:
    (ready.folder / "sparkbuild").mkdir(exist_ok=True)
    (ready.folder / "sparkbuild/__init__.py").write_text('"""A package."""\n\n__version__ = "7.8.9"\n')
    assert ready.run("--version").stdout.startswith("sparkbuild 7.8.9, doit 0.")


def test_a_version_that_cannot_be_written(ready: Project) -> None:
    argv = ["bash", "-c", "./doitw --version >/dev/full"]
    done = subprocess.run(argv, cwd=ready.folder, env=ready.env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("ERROR: what this command prints cannot be written\n")
    assert done.stderr.count("\n") == 2
