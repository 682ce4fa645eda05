"""The checker itself: it sees each kind of wrong that a campaign is to find, and uses nothing of the product."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign import checker
from tests.campaign.checker import View

DATA = {"a.bin": b"right", "deep/b.json": b"{}"}
TRUTH = {"files": {name: hashlib.sha256(data).hexdigest() for name, data in DATA.items()}}
ID = "f" * 64


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which a recipe's one folder is staged whole."""
    dst = tmp_path / "staged/alpha/files"
    for name, data in DATA.items():
        (dst / name).parent.mkdir(parents=True, exist_ok=True)
        (dst / name).write_bytes(data)
    (dst / ".sparkbuild").mkdir()
    entries = [{"name": name, "sha256": sha256} for name, sha256 in TRUTH["files"].items()]
    (dst / ".sparkbuild/ledger.json").write_text(json.dumps({"files": entries}))
    return tmp_path


def entry(recipe: str = "alpha", state: str = "running") -> dict[str, object]:
    labels = {"sparkbuild.recipe": recipe} if recipe else {"sparkbuild.trial": "1"}
    return {"Id": ID, "Names": ["/x"], "State": state, "Labels": labels}


def named(store: Path, container: str = ID) -> View:
    """A node whose root is this machine's, and whose record of `alpha` names a container."""
    (store / "lanes/alpha").mkdir(parents=True, exist_ok=True)
    (store / "lanes/alpha/lane.json").write_text(json.dumps({"container": container}))
    return View("dgx1", os.getpid(), str(store))


def test_the_checker_uses_nothing_of_the_product() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_all_is_well(store: Path) -> None:
    assert checker.staged_problems(store, TRUTH) == []
    assert checker.whole_problems(store, "alpha", TRUTH) == []
    assert checker.blob_problems(store) == []
    assert checker.record_problems(store) == []
    assert checker.part_problems(store) == []


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.bin", b"wrong", "wrong content under its final name"),
        ("a.bin", b"", "wrong content under its final name"),
        ("more.bin", b"more", "a file that the source does not have"),
        ("../other/c.bin", b"c", "nobody asked for it"),
        (f"blobs/{'0' * 64}", b"not zeros", "wrong content under its final name"),
        (f"blobs/{'0' * 40}", b"not zeros", "wrong content under its final name"),
    ],
)
def test_a_wrong_file_is_seen(store: Path, name: str, data: bytes, said: str) -> None:
    path = store / "staged/alpha/files" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    (problem,) = checker.staged_problems(store, TRUTH)
    assert said in problem


def test_what_a_served_recipe_lacks_is_seen(store: Path) -> None:
    dst = store / "staged/alpha/files"
    (dst / "a.bin").unlink()
    assert "not there" in str(checker.whole_problems(store, "alpha", TRUTH))
    (dst / "a.bin").symlink_to("/etc/hostname")  # what leads out is not there
    assert "not there" in str(checker.whole_problems(store, "alpha", TRUTH))
    (dst / ".sparkbuild/ledger.json").write_text('{"files": [')
    assert "ledger.json" in str(checker.whole_problems(store, "alpha", TRUTH))
    assert "ledger.json" in str(checker.record_problems(store))


@pytest.mark.parametrize("place", ["blobs/sha256", "incoming"])
def test_a_blob_with_another_name_is_seen(store: Path, place: str) -> None:
    folder = store / place
    folder.mkdir(parents=True)
    (folder / hashlib.sha256(b"x").hexdigest()).write_bytes(b"x")
    assert checker.blob_problems(store) == []
    (folder / ("1" * 64)).write_bytes(b"x")
    assert len(checker.blob_problems(store)) == 1


@pytest.mark.parametrize("name", ["a.bin.0123.part", "a.bin.0123.chunks", "draft.jsonl", "stamps.json.71.tmp"])
def test_what_is_left_over_is_seen(store: Path, name: str) -> None:
    (store / "staged/alpha/files/.sparkbuild" / name).touch()
    assert len(checker.part_problems(store)) == 1


def test_a_container_that_no_record_names_is_seen(store: Path) -> None:
    assert checker.container_problems(named(store), [entry()]) == []
    assert checker.container_problems(named(store, "0" * 64), [entry(state="exited")]) == []
    for state in checker.ALIVE:
        assert len(checker.container_problems(named(store, "0" * 64), [entry(state=state)])) == 1
    assert len(checker.container_problems(named(store), [entry("beta")])) == 1
    assert "of no lane" in str(checker.container_problems(named(store), [entry("")]))


def test_one_name_is_one_image() -> None:
    assert checker.image_problems({"dgx1": {"x:1": ["l"]}, "dgx2": {"x:1": ["l"], "y:1": ["m"]}}) == []
    assert "another image" in str(checker.image_problems({"dgx1": {"x:1": ["l"]}, "dgx2": {"x:1": ["m"]}}))
    assert "no layers" in str(checker.image_problems({"dgx1": {"x:1": []}}))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the HOME of an operator."""
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "HOME": "/srv/ann/home"})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_left_is_seen(store: Path, sleeper: subprocess.Popen[bytes]) -> None:
    view = View("here", os.getpid(), str(store))
    assert any(f"process {sleeper.pid} " in problem for problem in checker.process_problems(view, []))
    (problem,) = checker.operator_problems(Path("/srv/ann/home"))
    assert f"process {sleeper.pid} " in problem
    assert checker.operator_problems(Path("/srv/ben/home")) == []
