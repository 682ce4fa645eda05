"""`python -m sparkbuild init`: what it writes, what it leaves alone, and what an interrupt leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import tomli

from sparkbuild import __version__
from sparkbuild.__main__ import main
from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.init import FILES, init, template
from sparkbuild.workspace.load import load
from sparkbuild.workspace.shapes.schema import (
    Config,
    DockerfileImage,
    DockerImage,
    ImageFile,
    ImageGate,
    RecipeFile,
    VenvImage,
)
from sparkbuild.workspace.shapes.stagingschema import HubStaging, RowsStaging
from sparkbuild.workspace.toml.places import levels
from sparkbuild.workspace.toml.scan import scan
from tests.workspace.helpers import put


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def adopted(root: Path) -> Path:
    """A new workspace whose examples were put to use, as their comments say."""
    init(root)
    for path in list(root.rglob("*.example")):
        path.rename(path.with_suffix(""))
    return root


def switched_on(text: str) -> str:
    """A template with the settings that are switched off in it switched on."""
    return re.sub(r"^#(?! |$)", "", text, flags=re.MULTILINE)


def test_a_new_workspace_loads_and_is_complete(tmp_path: Path) -> None:
    written = init(tmp_path / "deep" / "ws")
    assert sorted(tree(written.root)) == sorted(FILES)
    here = load(written.root)
    assert (here.problems, here.recipes, here.images) == ({}, {}, {})
    assert [entry.name for entry in written.root.parent.iterdir()] == ["ws"]


def test_dodo_is_these_lines(tmp_path: Path) -> None:
    lines = (init(tmp_path / "ws").root / "dodo.py").read_text().splitlines()
    assert lines[0].startswith('"""')
    assert [line for line in lines[1:] if line] == [
        "from sparkbuild.plugin.tasks import *  # noqa",
        "DOIT_CONFIG = config()",
    ]


def test_the_examples_load_as_they_are_and_with_all_settings_on(tmp_path: Path) -> None:
    root = adopted(tmp_path / "ws")
    assert {key: str(error) for key, error in load(root).problems.items()} == {}
    assert list(load(root).recipes) == ["example"]
    images = [f"images/{name}/image.toml" for name in ("example", "example-docker", "example-dockerfile")]
    for name in ("config.toml", "recipes/example/recipe.toml", *images):
        put(root, name, switched_on((root / name).read_text()))
    here = load(root)
    assert {key: str(error) for key, error in here.problems.items()} == {}
    assert len(here.recipes["example"].spec.gates) == 2


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("config.toml", Config),
        ("image.toml", VenvImage),
        ("docker-image.toml", DockerImage),
        ("dockerfile-image.toml", DockerfileImage),
        ("recipe.toml", RecipeFile),
    ],
)
def test_the_templates_show_every_key(name: str, shape: type[msgspec.Struct]) -> None:
    text = switched_on(template(name))
    shown = {tuple(key for key in path if isinstance(key, str)) for path in scan(text).spots}
    for level in levels(shape):
        for field in level.fields:
            path = (*level.path, field)
            assert any(_fits(path, one) for one in shown), f"{name} does not show {path}"


def _fits(path: tuple[str, ...], shown: tuple[str, ...]) -> bool:
    return len(path) == len(shown) and all(key in {"*", one} for key, one in zip(path, shown, strict=True))


def test_the_templates_say_the_defaults() -> None:
    image = tomli.loads(switched_on(template("image.toml")))
    assert msgspec.convert(image, ImageFile) == VenvImage(lock="example")
    image = tomli.loads(switched_on(template("docker-image.toml")))
    assert msgspec.convert(image, ImageFile) == DockerImage(lock="example", debs=("busybox",))
    image = tomli.loads(switched_on(template("dockerfile-image.toml")))
    (gate,) = image.pop("gates")
    made = DockerfileImage(lock="example", base="scratch", artifacts=("busybox",))
    assert msgspec.convert(image, ImageFile) == made
    assert msgspec.convert(gate, ImageGate) == ImageGate(id=gate["id"], command=tuple(gate["command"]))
    lean = msgspec.convert(tomli.loads(template("recipe.toml")), RecipeFile)
    full = msgspec.convert(tomli.loads(switched_on(template("recipe.toml"))), RecipeFile)
    assert full.staging[:1] == lean.staging
    rows, mirror = full.staging[2], full.staging[1]
    assert rows == RowsStaging(id=rows.id, src=rows.src, repos=rows.repos, revision="main")  # what "" means
    assert mirror == HubStaging(id=mirror.id, src=mirror.src, repos=mirror.repos, exports=mirror.exports)
    assert (full.serve.ready_timeout, full.serve.stop_grace) == (lean.serve.ready_timeout, lean.serve.stop_grace)


def test_what_is_in_the_way_is_listed_and_nothing_is_written(tmp_path: Path) -> None:
    put(tmp_path, "dodo.py", "mine")
    put(tmp_path, "locks", "a file where a folder must be")
    before = tree(tmp_path)
    with pytest.raises(ConfigError) as caught:
        init(tmp_path)
    assert caught.value.found == "locks\ndodo.py"
    assert tree(tmp_path) == before


def test_twice_is_refused(tmp_path: Path) -> None:
    init(tmp_path / "ws")
    put(tmp_path / "ws", "config.toml", "# changed")
    before = tree(tmp_path)
    with pytest.raises(ConfigError):
        init(tmp_path / "ws")
    assert tree(tmp_path) == before


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_an_existing_repository_keeps_its_files(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    put(tmp_path, ".gitignore", "*.log\n.sparkbuild/")
    put(tmp_path, "recipes/mine/notes.txt", "x")
    written = init(tmp_path)
    assert written.ignored == ("secrets.env", "__pycache__/")
    assert (tmp_path / ".gitignore").read_text() == "*.log\n.sparkbuild/\nsecrets.env\n__pycache__/\n"
    assert (tmp_path / "recipes/mine/notes.txt").read_text() == "x"
    assert not list(tmp_path.glob(".sparkbuild-init*"))
    put(tmp_path, "secrets.env", "TOKEN=x")
    status = subprocess.run(["git", "-C", str(tmp_path), "status", "--short", "-uall"], capture_output=True, check=True)
    assert b"secrets" not in status.stdout
    assert b"dodo.py" in status.stdout


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "ws", "x")
    with pytest.raises(ConfigError, match="in the way"):
        init(tmp_path / "ws")


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("reached", range(4))
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, existing: bool, reached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes at the n-th change of the file system that the last stage makes."""
    target = tmp_path / "ws"
    if existing:
        put(target, "mine.txt", "x")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    real, count = Path.rename, 0

    def rename(self: Path, to: Path) -> Path:
        nonlocal count
        count += 1
        if count > (reached if existing else 0):
            raise KeyboardInterrupt
        return real(self, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        init(target)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    put(tmp_path, "file", "x")
    with pytest.raises(ConfigError, match="cannot be written"):
        init(tmp_path / "file" / "ws")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sparkbuild", *arguments], capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    assert run("--version").stdout == f"sparkbuild {__version__}\n"
    assert "init" in run("--help").stdout
    assert run().returncode == 2
    assert run("inti").returncode == 2
    done = run("init", str(tmp_path / "ws"))
    assert done.returncode == 0, done.stderr
    assert "dodo.py" in done.stdout
    again = run("init", str(tmp_path / "ws"))
    assert again.returncode == 1
    assert "nothing was written" in again.stderr
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize("words", ["--version", "init made"])
def test_output_that_cannot_be_written_is_said(tmp_path: Path, words: str) -> None:
    argv = ["bash", "-c", f"{sys.executable} -m sparkbuild {words} >/dev/full"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("ERROR: what this command prints cannot be written\n  found:  No space left")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "made/config.toml").exists() == ("made" in words)


def test_main_returns_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "ws")]) == 0
    assert main(["init", str(tmp_path / "ws")]) == 1
    assert "dodo.py" in capsys.readouterr().err
