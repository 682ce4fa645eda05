"""Whose a folder is: by another spelling of its path, from another workspace or store. And files that were there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import index, ownership
from tests.agent.driver import call, key, look, request_for, sha256
from tests.agent.exports import Site
from tests.staging.hubcache import COMMIT, usual
from tests.staging.mirror import Mirror

Make = Callable[[str, int], Path]
OWNER = {"recipe": "one", "block": "data", "workspace": "here:/srv/w"}
OTHERS = [{"recipe": "two"}, {"block": "more"}, {"workspace": "there:/srv/w"}]


@pytest.fixture
def first(tmp_path: Path, dst: Path, make: Make) -> dict[str, Any]:
    """What one block has staged."""
    request = request_for(dst, {"a.bin": make("a.bin", 1000)}, store=str(tmp_path / "store"), owner=OWNER)
    assert call("stage", request).code == 0
    return request


def other_of(request: dict[str, Any], dst: Path | str, make: Make, **owner: str) -> dict[str, Any]:
    """Other data of another block."""
    what = request_for(Path(dst), {"b.bin": make("b.bin", 1000)}, "b")
    return {**request, **what, "dst": str(dst), "owner": {**OWNER, **owner}}


def refused(request: dict[str, Any]) -> dict[str, Any]:
    """The error of a staging, which a look has told before."""
    query = {"scheme": "staged", "full": False, **request}
    fact = call("facts", {"store": request["store"], "queries": [query]}).last["facts"][0]
    answer = call("stage", request)
    assert (answer.code, answer.last["kind"]) == (1, "config")
    assert fact["refused"]["found"] == answer.last["found"]
    assert fact["refused"]["part"] == "dst"
    return answer.last


@pytest.mark.parametrize("owner", OTHERS)
def test_the_same_folder_through_a_link(
    first: dict[str, Any], dst: Path, make: Make, tmp_path: Path, owner: dict[str, str]
) -> None:
    (tmp_path / "link").symlink_to(dst.parent)
    found = refused(other_of(first, tmp_path / "link" / dst.name, make, **owner))
    assert found["what"] == "the folder to stage into holds other staged data"
    assert f"{dst} is of one:data of workspace here:/srv/w" in found["found"]
    assert (dst / "a.bin").exists()
    assert not (dst / "b.bin").exists()
    assert call("stage", {**first, "dst": str(tmp_path / "link" / dst.name)}).last["copied"] == 0  # the same data


@pytest.mark.parametrize("owner", OTHERS)
def test_folders_inside_each_other_through_a_link(
    first: dict[str, Any], dst: Path, make: Make, tmp_path: Path, owner: dict[str, str]
) -> None:
    (tmp_path / "link").symlink_to(dst)
    inner = refused(other_of(first, tmp_path / "link/inner", make, **owner))
    assert inner["what"] == "the folder to stage into is inside of other staged data"
    outer = refused(other_of(first, dst.parent, make, **owner))
    assert outer["what"] == "other staged data is inside of the folder to stage into"
    assert not (dst / "inner").exists()
    assert not (dst.parent / ".sparkbuild").exists()


@pytest.mark.parametrize("store", ["store", "store of the other"])
def test_another_workspace(first: dict[str, Any], dst: Path, make: Make, tmp_path: Path, store: str) -> None:
    """Also by a store of its own, whose index knows nothing of the folder."""
    other = other_of({**first, "store": str(tmp_path / store)}, dst, make, workspace="there:/srv/w")
    found = refused(other)
    assert "of one:data of workspace here:/srv/w" in found["found"]
    assert look(dst)["problems"] == []
    subprocess.run(found["next"].partition("any more, ")[2], shell=True, check=True)
    assert call("stage", other).code == 0
    assert not (dst / "a.bin").exists()


def test_a_workspace_that_is_gone_owns_nothing(first: dict[str, Any], dst: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    mine = other_of(first, dst, make, workspace=f"{socket.gethostname()}:{tmp_path}/w")
    ownership.write(str(dst), ownership.Owner(str(dst), "x", "y", mine["owner"]["workspace"], key("c"), 1.0))
    assert "x:y of workspace" in refused({**mine, "owner": OWNER})["found"]
    (tmp_path / "w").rmdir()
    assert call("stage", {**mine, "owner": OWNER}).code == 0


def test_another_recipe_of_the_workspace_takes_a_folder_over(first: dict[str, Any], dst: Path, make: Make) -> None:
    """The workspace itself sees to it that no two of its recipes have one folder."""
    assert call("stage", other_of(first, dst, make, recipe="two")).code == 0
    found = ownership.read(str(dst))
    assert found is not None
    assert (found.recipe, found.key[:1]) == ("two", "b")


def test_one_that_failed_owns_nothing(dst: Path, make: Make, tmp_path: Path) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 1000)}, store=str(tmp_path / "store"), owner=OWNER)
    assert call("stage", {**request, "min_free": 1 << 62}).last["kind"] == "space"
    assert not dst.exists()


def test_an_export_has_a_folder_of_its_own(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored(owner=OWNER)
    (tmp_path / "link").symlink_to(site.mirror.parent)
    site.dst = tmp_path / "link" / site.mirror.name / "inner"
    owner = {**OWNER, "block": "data/model"}
    answer = site.export(site.tree(), owner=owner)
    assert answer.last["what"] == "the folder to stage into is inside of other staged data"
    query = {"scheme": "export", "dst": str(site.dst), "key": key("e"), "what": site.tree(), "owner": owner}
    fact = call("facts", {"store": str(site.store), "queries": [query]}).last["facts"][0]
    assert fact["refused"]["found"] == answer.last["found"]


# files that were there before


def evict(store: Path, dst: Path) -> dict[str, Any]:
    answer = call("evict", {"store": str(store), "dsts": [str(dst)]})
    assert answer.code == 0, answer.events
    found: dict[str, Any] = answer.last["folders"][0]
    return found


def test_adopted_files_are_not_evicted(dst: Path, make: Make, tmp_path: Path) -> None:
    files = {"a.bin": make("a.bin", 1000), "b.bin": make("b.bin", 1000)}
    dst.mkdir(parents=True)
    shutil.copy(files["a.bin"], dst)
    request = request_for(dst, files, store=str(tmp_path / "store"), owner=OWNER)
    assert call("stage", request).last["adopted"] == 1
    assert call("stage", {**request, "full": True}).code == 0
    query = {"scheme": "inventory"}
    row = call("facts", {"store": request["store"], "queries": [query]}).last["facts"][0]["folders"][0]
    assert row["adopted"] is True
    assert evict(tmp_path / "store", dst)["refused"].startswith("its files were there before")
    assert look(dst)["problems"] == []
    fewer = request_for(dst, {"b.bin": files["b.bin"]}, "b")
    answer = call("stage", {**request, **fewer})
    assert answer.last["removed"] == 0
    assert "no longer wanted, in a folder that had files before" in answer.logs
    assert sha256(dst / "a.bin") == sha256(files["a.bin"])
    shutil.rmtree(dst)  # by hand: what is staged from now on is ours
    assert call("stage", request).code == 0
    assert evict(tmp_path / "store", dst)["refused"] == ""
    assert not dst.exists()


def test_what_an_interrupted_run_left_is_no_file_of_others(first: dict[str, Any], dst: Path, tmp_path: Path) -> None:
    os.rename(dst / ".sparkbuild/ledger.json", dst / ".sparkbuild/away")
    (dst / ".sparkbuild/away").unlink()
    assert call("stage", first).last["adopted"] == 1  # the ledger is lost, and the owner tells that it was staged
    found = index.entry(str(tmp_path / "store"), str(dst))
    assert found is not None
    assert not found.adopted
    assert evict(tmp_path / "store", dst)["refused"] == ""


def test_an_own_hub_cache(tmp_path: Path) -> None:
    """Its blobs are kept and never evicted; a ref that names another commit is not overwritten."""
    nas, mine = usual(tmp_path / "nas"), usual(tmp_path / "mine")
    mirror = Mirror(tmp_path / "mine")
    ref = mine.folder / "refs/main"
    ref.write_text("f" * 40)
    links = {path: os.readlink(path) for path in mine.snapshot.rglob("*") if path.is_symlink()}
    found = mirror.refused(nas.root)
    assert "refs/main" in found["found"]
    assert ref.read_text() == "f" * 40
    assert {path: os.readlink(path) for path in links} == links
    ref.write_text(COMMIT)
    assert mirror.call(nas.root).last["adopted"] > 0
