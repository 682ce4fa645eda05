"""A small project with the real doitw, doit and flit_core, whose wheels are packed from the installed ones: offline."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest

DOITW = Path(__file__).parents[2] / "doitw"

# A doit command that shows what reached it, and can end or wait as it is told.
STANDIN = '''"""Stands in for sparkbuild."""
import json, os, signal, sys
from doit.cmd_base import Command
__version__ = "1.0"

class Show(Command):
    name, doc_purpose, doc_usage, doc_description = "show", "", "", ""
    cmd_options = ()

    def execute(self, params, args):
        seen = {"argv": sys.argv[1:], "pid": os.getpid(), "cwd": os.getcwd(), "prefix": sys.prefix}
        print(json.dumps(seen | {"path": os.environ["PATH"], "env": os.environ.get("VIRTUAL_ENV")}), flush=True)
        if args[:1] == ["wait"]:
            signal.pause()
        return int(args[1]) if args[:1] == ["leave"] else 0
'''

PYPROJECT = """[build-system]
requires = ["flit_core"]
build-backend = "flit_core.buildapi"
[project]
name = "standin"
description = "A stand-in."
dynamic = ["version"]
[project.entry-points."doit.COMMAND"]
show = "standin:Show"
"""


@dataclass(frozen=True)
class Project:
    """A folder with a doitw in it."""

    folder: Path
    env: dict[str, str] = field(repr=False)

    @property
    def lock(self) -> Path:
        return self.folder / "requirements.lock"

    def run(self, *args: str, env: dict[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        """`./doitw ARGS` to its end."""
        options = {"cwd": self.folder, "capture_output": True, "text": True, "timeout": 120} | options
        command = ["./doitw", *args]
        return subprocess.run(command, env=self.env | (env or {}), check=False, **options)  # type: ignore[call-overload, no-any-return]

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """`./doitw ARGS`, left running in a process group of its own."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        return subprocess.Popen(["./doitw", *args], cwd=self.folder, env=self.env | (env or {}), **pipes)  # type: ignore[call-overload, no-any-return]

    def stamp(self) -> tuple[int, int]:
        """Differs once .venv is made anew."""
        status = (self.folder / ".venv/.doitw").stat()
        return status.st_ino, status.st_mtime_ns


def _pack(name: str, folder: Path) -> Path:
    """A wheel of an installed package, for this machine."""
    dist = importlib.metadata.distribution(name)
    wheel = folder / f"{name}-{dist.version}-py3-none-any.whl"
    made_on_install = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
    rows = []
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in dist.files or ():
            path = PurePosixPath(file)
            if ".." in path.parts or path.suffix == ".pyc" or path.name in made_on_install:
                continue
            archive.write(str(file.locate()), str(path))
            rows.append(f"{path},,\n")
            info = path.parts[0] if path.parts[0].endswith(".dist-info") else f"{name}-{dist.version}.dist-info"
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return wheel


def lock_text(wheels: Path) -> str:
    """The requirements.lock of a folder of wheels."""
    rows = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        rows.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(rows)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels: doit, flit_core, and the TOML parser that doit wants and Python 3.10 lacks."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("doit", "flit_core", *(["tomli"] if sys.version_info < (3, 11) else [])):
        _pack(name, folder)
    return folder


@pytest.fixture(scope="session")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `python3` whose `-m venv FOLDER` copies one that was made before: 0.2 s for 3 s, and there are many to make."""
    folder = tmp_path_factory.mktemp("quick")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "python3"
    copy, real = shlex.quote(str(folder / "venv")), shlex.quote(sys.executable)
    python.write_text(f'#!/bin/sh\n[ "$1 $2" != "-m venv" ] || exec cp -a {copy} "$3"\nexec {real} "$@"\n')
    python.chmod(0o755)
    return python


def make_project(folder: Path, wheels: Path, python: Path) -> Project:
    """A project that needs no network, with `python` as its `python3`: no shim of a version manager in between."""
    folder.mkdir(parents=True)
    shutil.copy2(DOITW, folder)
    (folder / "standin.py").write_text(STANDIN)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "requirements.lock").write_text(lock_text(wheels))
    programs = folder.parent / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(python)
    dropped = ("PIP_", "PYTHON", "SPARKBUILD_", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    env |= {"PATH": f"{programs}:{env['PATH']}", "PIP_CONFIG_FILE": os.devnull}
    return Project(folder, env | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)})


@pytest.fixture
def project(tmp_path: Path, wheels: Path, quick_python: Path) -> Project:
    """A project without a .venv, in a folder with a space in its name."""
    return make_project(tmp_path / "my work" / "space", wheels, quick_python)


@pytest.fixture(scope="package")
def ready(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Project:
    """A project with a whole .venv, made by the real python3; its tests leave it as it was."""
    project = make_project(tmp_path_factory.mktemp("a b") / "space", wheels, Path(sys.executable).resolve())
    done = project.run("show")
    assert done.returncode == 0, done.stderr
    return project
