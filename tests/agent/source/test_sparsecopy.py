"""A sparse copy as the source of another staging: the rows that it has are taken, and no zeros for the others."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import call, key
from tests.staging.checkpoint import COMMIT, REPO, Checkpoint, make

LAYOUTS = ["packed", "page15", "sparse-copy"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make(tmp_path_factory.mktemp("checkpoint") / "m")


def request(src: Path, dst: Path, **more: Any) -> dict[str, Any]:
    what = {"kind": "packed", "model": str(src), "layers": [], "split": "heads", "tp": 2, "rank": 0, **more}
    return {"store": "/", "dst": str(dst), "key": key(), "parts": {}, "what": what}


def staged(src: Path, dst: Path, **more: Any) -> Path:
    answer = call("stage", request(src, dst, **more))
    assert answer.code == 0, answer.events
    return dst


def refused(wanted: dict[str, Any]) -> dict[str, str]:
    """By a plan and by a run, in the same words, and nothing is made."""
    said = call("verify", wanted).last["refused"]
    assert said.pop("part") == "source"
    last = call("stage", wanted).last
    assert {name: last[name] for name in said} == said
    assert said["kind"] == "config"
    assert all(said[field] for field in ("what", "where", "found", "wanted", "next"))
    assert not os.path.lexists(wanted["dst"])
    return said


@pytest.fixture
def sparse(made: Checkpoint, tmp_path: Path) -> Path:
    return staged(made.folder, tmp_path / "sparse", kind="sparse-copy")


def content(folder: Path) -> dict[str, bytes]:
    names = {path.name for path in folder.iterdir()} - {".sparkbuild", "engram-local.json"}
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_same_rows(made: Checkpoint, sparse: Path, tmp_path: Path, kind: str) -> None:
    right = content(staged(made.folder, tmp_path / "right", kind=kind))
    assert content(staged(sparse, tmp_path / "again", kind=kind)) == right
    shutil.copytree(sparse, tmp_path / "other", ignore=shutil.ignore_patterns(".sparkbuild"))  # by hand, to a NAS
    assert content(staged(tmp_path / "other", tmp_path / "third", kind=kind)) == right


@pytest.mark.parametrize("kind", LAYOUTS)
def test_other_rows(made: Checkpoint, sparse: Path, tmp_path: Path, kind: str) -> None:
    rows, heads = made.tables[1].rows, sum(made.tables[1].heads[:12])
    others = [({"split": "even", "rank": 1}, rows // 2, rows), ({"rank": 1}, heads, rows), ({"tp": 1}, 0, rows)]
    for more, low, high in others:
        wanted = request(sparse, tmp_path / "dst", kind=kind, **more)
        said = refused(wanted)
        assert said["where"] == f"{sparse}/engram-local.json"
        assert said["found"] == f"rows [0, {heads}) of layer 1"
        assert said["wanted"] == f"rows [{low}, {high}) of layer 1"
        assert "checkpoint itself" in said["next"]


def test_what_the_manifest_does_not_name(made: Checkpoint, tmp_path: Path) -> None:
    one = staged(made.folder, tmp_path / "one", kind="sparse-copy", layers=[1])
    shutil.copy(made.folder / made.files[14], one)  # somebody put it there: the manifest does not tell
    assert refused(request(one, tmp_path / "dst"))["found"] == "no rows of layer 14"
    assert staged(one, tmp_path / "dst", layers=[1]).is_dir()


def test_other_tensors_of_the_shards(sparse: Path, tmp_path: Path) -> None:
    said = refused(request(sparse, tmp_path / "dst", kind="sparse-copy", complete_shard=True))
    assert said["found"] == "complete_shard = true in the staging block"


def test_a_whole_table(made: Checkpoint, tmp_path: Path) -> None:
    whole = staged(made.folder, tmp_path / "whole", kind="sparse-copy", tp=1)
    for rank in (0, 1):
        wanted = {"split": "even", "rank": rank}
        right = staged(made.folder, tmp_path / f"right{rank}", **wanted)
        assert content(staged(whole, tmp_path / f"dst{rank}", **wanted)) == content(right)


BROKEN = ["", "{", "[]", "{}", '{"layers": {"1": [0]}}', '{"layers": {"1": ["0", "9"]}}', '{"layers": 3}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_manifest_that_says_nothing(sparse: Path, tmp_path: Path, text: str) -> None:
    (sparse / "engram-local.json").write_text(text)
    assert "nobody can say of which rows" in refused(request(sparse, tmp_path / "dst"))["what"]


def test_a_composed_folder(made: Checkpoint, sparse: Path, tmp_path: Path) -> None:
    """The checkpoint as links, and over them the files of the sparse copy."""
    folder = tmp_path / "composed"
    folder.mkdir()
    for path in made.folder.iterdir():
        (folder / path.name).symlink_to(path)
    for path in sparse.iterdir():
        if path.is_file():
            (folder / path.name).unlink(missing_ok=True)
            os.link(path, folder / path.name)
    assert refused(request(folder, tmp_path / "dst", rank=1))["where"] == f"{folder}/engram-local.json"
    assert staged(folder, tmp_path / "dst").is_dir()


def test_a_snapshot_that_is_one(sparse: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(sparse, snapshot, ignore=shutil.ignore_patterns(".sparkbuild", "*.index.json"))
    what = {"kind": "hub-mirror", "cache": str(tmp_path / "hub"), "repo": REPO, "revision": COMMIT, "skip": []}
    wanted = {"store": "/", "dst": str(tmp_path / "dst"), "key": key(), "parts": {}, "what": what}
    said = refused(wanted)
    assert said["where"] == f"{snapshot}/engram-local.json"
    assert "model-00003-of-00004.safetensors and 1 more" in said["found"]
    what["skip"] = ["*.safetensors"]
    assert call("stage", wanted).code == 0


def test_a_model_folder_has_no_revision(sparse: Path) -> None:
    assert json.loads((sparse / "engram-local.json").read_text())["revision"] == ""
