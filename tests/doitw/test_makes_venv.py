"""When .venv is made, made anew, or left alone."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.doitw.conftest import PYPROJECT, Project

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def made(done: subprocess.CompletedProcess[str], why: str) -> None:
    """It was made, for that reason, and worked."""
    assert done.returncode == 0, done.stderr
    assert "making .venv with Python" in done.stderr
    assert why in done.stderr
    assert ".venv is ready" in done.stderr


def wait_until(true: Callable[[], object]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("waited too long")


@pytest.fixture
def look(tmp_path: Path) -> Callable[[Project], str]:
    """Says why .venv would be made anew ("" if it would not): its Python cannot make one, and that is quick."""
    fake = tmp_path / "fake/python3"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\n[ "$1" != -m ] || exit 1\necho 3.11.0\n')
    fake.chmod(0o755)

    def why(project: Project) -> str:
        done = project.run("show", env={"PATH": f"{fake.parent}:{project.env['PATH']}"})
        if done.returncode == 0:
            assert done.stderr == ""
            return ""
        return done.stderr.split("(", 1)[1].split(");", 1)[0]

    return why


def test_made_anew_when_and_only_when_something_it_rests_on_changed(
    project: Project, look: Callable[[Project], str]
) -> None:
    assert look(project) == "there is none yet"
    made(project.run("show"), "there is none yet")
    assert look(project) == ""

    # new times, same content: a fresh checkout of the same commit
    os.utime(project.lock)
    os.utime(project.folder / "pyproject.toml")
    assert look(project) == ""

    moved = Project(project.folder.with_name("elsewhere"), project.env)
    project.folder.rename(moved.folder)
    assert look(moved) == f"it was made in {project.folder}"
    moved.folder.rename(project.folder)
    assert look(project) == "", "moved back, it is right again"

    # an upgrade of the machine's python3: the same name leads to another file, or to none
    python = project.folder / ".venv/bin/python"
    link, real = python.readlink(), python.resolve()
    for other in ("/bin/true", "/nowhere/python3"):
        python.unlink()
        python.symlink_to(other)
        assert look(project) == f"its interpreter {real} is gone or was replaced"
    python.unlink()
    python.symlink_to(link)

    project.lock.write_text("# a comment\n" + project.lock.read_text())
    assert look(project) == "requirements.lock has changed"
    made(project.run("show"), "requirements.lock has changed")
    assert not (project.folder / ".venv.old").exists()

    (project.folder / ".venv/.doitw").unlink()
    assert look(project) == "the last attempt did not finish"


def test_another_python_only_when_asked_for(project: Project, quick_python: Path) -> None:
    asked = {"SPARKBUILD_PYTHON": str(quick_python)}
    made(project.run("show", env=asked), "there is none yet")
    assert project.run("show", env=asked).stderr == ""
    assert project.run("show").stderr == "", "a whole .venv will do when no Python is asked for"
    made(
        project.run("show", env={"SPARKBUILD_PYTHON": "python3"}), f"made with {quick_python} and SPARKBUILD_PYTHON is"
    )


def test_new_entry_points_are_linked_without_a_new_venv(ready: Project) -> None:
    before = ready.stamp()
    pyproject = ready.folder / "pyproject.toml"
    pyproject.write_text(PYPROJECT.replace("show =", "look ="))
    done = ready.run("look")
    assert done.returncode == 0, done.stderr
    assert "linking sparkbuild into .venv again (pyproject.toml has changed)" in done.stderr
    assert ready.run("look").stderr == ""

    pyproject.write_text("[project\n")
    done = ready.run("look")
    assert done.returncode == 1
    assert "sparkbuild could not be linked into .venv" in done.stderr
    assert ready.run("look").returncode == 1, "a failed link is tried again"
    assert sorted(path.name for path in ready.folder.glob(".venv*")) == [".venv", ".venv.lock", ".venv.log"]

    pyproject.write_text(PYPROJECT)
    assert ready.run("show").returncode == 0
    assert ready.stamp() == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_interrupted(project: Project, look: Callable[[Project], str], number: signal.Signals, code: int) -> None:
    process = project.start("show")
    wait_until((project.folder / ".venv/bin/pip").exists)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    if number != signal.SIGKILL:
        assert "interrupted; .venv is not ready" in said
        assert not (project.folder / ".venv").exists()
        assert look(project) == "there is none yet"
    else:
        made(project.run("show"), "the last attempt did not finish")


def test_a_signal_to_doitw_alone_ends_what_it_started(project: Project) -> None:
    process = project.start("show")
    wait_until((project.folder / ".venv/pyvenv.cfg").exists)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 143
    in_folder = [pid for pid in os.listdir("/proc") if pid.isdigit() and _cwd(pid) == str(project.folder)]
    assert in_folder == []


def test_a_slow_network_is_told_and_not_silence(project: Project) -> None:
    """What it is at is said every ten seconds, and whoever says it ends with doitw."""
    with socket.create_server(("127.0.0.1", 0)) as index:  # takes the connection, and never answers
        url = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        process = project.start("show", env={"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": url})
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(3)]
        assert said[1].startswith("doitw: 10 s: "), said
        assert said[2].startswith("doitw: 20 s: "), said
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 143
    in_folder = [pid for pid in os.listdir("/proc") if pid.isdigit() and _cwd(pid) == str(project.folder)]
    assert in_folder == []


def _cwd(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_two_at_once(project: Project) -> None:
    both = [project.start("show"), project.start("show")]
    said = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted("making .venv" in text for text in said) == [False, True]
    assert sorted("another doitw is at work on .venv; waiting for it" in text for text in said) == [False, True]
