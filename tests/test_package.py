"""The wheel: built from this tree, it brings the doit plugins and can write a workspace anywhere."""

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, REPOSITORY]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("sparkbuild-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_plugins_are_entry_points(unpacked: Path) -> None:
    (info,) = unpacked.glob("sparkbuild-*.dist-info")
    points = configparser.ConfigParser()
    points.read(info / "entry_points.txt")
    ours = {"run", "list", "plan", "why", "status", "health", "logs", "trust", "completion", "outdated", "verify"}
    withheld = {"clean", "dumpdb", "info", "reset-dep", "strace", "tabcompletion"}
    assert set(points["doit.COMMAND"]) == ours | {"forget", "help", "ignore", *withheld}
    assert "sparkbuild" in points["doit.BACKEND"]
    assert "sparkbuild" in points["doit.REPORTER"]
    licences = [path for path in info.rglob("LICENSE*") if path.is_file()]
    assert licences
    assert "Apache License" in licences[0].read_text()


def test_a_workspace_is_written_and_works_with_the_wheel_alone(unpacked: Path, tmp_path: Path) -> None:
    # the installed sparkbuild of this run is the source tree: the unpacked wheel must win over it
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    home = tmp_path / "mine"

    def run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return done

    run("-m", "sparkbuild", "init", str(home), cwd=tmp_path)
    where = "import sparkbuild, sys; print(sparkbuild.__file__)"
    assert run("-c", where, cwd=home).stdout.startswith(str(unpacked))
    assert "lock:check" in run("-m", "doit", "list", cwd=home).stdout
    assert "nothing to do" in run("-m", "doit", "plan", cwd=home).stdout
