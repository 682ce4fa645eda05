"""Each way that making .venv can fail gives one message that says what to do, and leaves nothing half-made."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doitw.conftest import Project


def refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    for text in texts:
        assert text in done.stderr


def python_that(folder: Path, does: str) -> dict[str, str]:
    """The environment with a Python that runs `does` before the code it is given with -c."""
    fake = folder / "python3"
    code = f"import sys; {does}; exec(sys.argv[-1])"
    fake.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    fake.chmod(0o755)
    return {"SPARKBUILD_PYTHON": str(fake)}


def test_no_python(project: Project) -> None:
    done = project.run("show", env={"SPARKBUILD_PYTHON": "python9"})
    refused(done, "python9 is not on this machine", "apt-get install python3 python3-venv")


def test_a_python_that_is_too_old(project: Project, tmp_path: Path) -> None:
    done = project.run("show", env=python_that(tmp_path, "sys.version_info = (3, 9, 2)"))
    refused(done, "is Python 3.9.2; 3.10 or newer is needed", "SPARKBUILD_PYTHON=")


def test_a_python_without_ensurepip(project: Project, tmp_path: Path) -> None:
    done = project.run("show", env=python_that(tmp_path, "sys.modules['ensurepip'] = None"))
    minor = "{}.{}".format(*sys.version_info)
    refused(done, "without the venv and ensurepip modules", f"next: apt-get install python{minor}-venv")


def test_a_python_that_does_not_run(project: Project) -> None:
    done = project.run("show", env={"SPARKBUILD_PYTHON": "/bin/false"})
    refused(done, "/bin/false does not run")


def test_a_file_that_is_not_the_locked_one(ready: Project) -> None:
    good = ready.lock.read_text()
    digest = good.split("sha256:")[1].split()[0]
    ready.lock.write_text(good.replace(digest, hashlib.sha256(b"other").hexdigest()))
    refused(
        ready.run("show"),
        "THESE PACKAGES DO NOT MATCH THE HASHES",
        digest,
        "is not the one that requirements.lock names",
        "the former .venv is back",
    )
    ready.lock.write_text(good)
    done = ready.run("show")
    assert (done.returncode, done.stderr) == (0, ""), "the .venv of the old lock serves the old lock"


def test_no_network(project: Project) -> None:
    env = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_RETRIES": "1", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    done = project.run("show", env=env)
    refused(
        done, "could not be installed; the end of .venv.log:", "the package index cannot be reached", "PIP_INDEX_URL"
    )
    assert not (project.folder / ".venv").exists()


def test_no_wheel_for_this_machine(project: Project) -> None:
    project.lock.write_text(project.lock.read_text() + f"nowhere==1.0 --hash=sha256:{'0' * 64}\n")
    refused(project.run("show"), "offers no wheel of a locked package for Python 3.")


def mounted(project: Project, mount: str) -> subprocess.CompletedProcess[str]:
    """`./doitw show` where only it sees the mount."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount in a namespace")
    script = f'{mount} && cd "$1" && exec ./doitw show'
    return subprocess.run(
        [*unshare, "sh", "-c", script, "sh", str(project.folder)],
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_full_disk(project: Project) -> None:
    aside = project.folder.with_name("aside")
    project.folder.rename(aside)
    project.folder.mkdir()
    done = mounted(project, f'mount -t tmpfs -o size=13m none "$1" && cp -a {shlex.quote(str(aside))}/. "$1"')
    refused(done, "the disk is full", "next: df -h")


def test_a_folder_that_cannot_be_written(project: Project) -> None:
    done = mounted(project, 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"')
    refused(done, f"{project.folder} cannot be written", "ls -ld")
