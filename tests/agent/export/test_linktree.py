"""Exports of a mirror: what they hold, that they cost nothing, what is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.export import look
from tests.agent.driver import CHUNK, entry
from tests.agent.exports import PAGES, Site, safetensors
from tests.staging.hubcache import OTHER, REAL

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def same(one: Path, other: Path) -> bool:
    return os.path.samestat(os.lstat(one), os.lstat(other))


def test_a_tree_of_regular_files_with_binds_for_what_was_skipped(site: Site) -> None:
    """The story of page15: in the mirror's skip, on the NAS, and yet under its path for the engine."""
    site.mirrored("page15/*")
    result = site.made(site.tree("page15/*"))
    assert (result["files"], result["made"], result["empty"], result["mounts"]) == (8, 6, 2, 3)
    assert site.names() == sorted(site.nas.files)
    for name in site.nas.files:
        file = site.dst / name
        assert not file.is_symlink()
        assert file.is_file()
        if name in PAGES:
            assert file.stat().st_size == 0
        else:
            assert same(file, site.blob(name))
            assert file.read_bytes() == site.nas.files[name]
    fact = site.look(site.tree("page15/*"))
    assert (fact["present"], fact["key"], fact["problems"]) == (True, "e" * 64, [])
    assert fact["mounts"][0] == {"source": str(site.dst), "target": "/model", "read_only": True}
    for mount, name in zip(fact["mounts"][1:], PAGES, strict=True):
        assert mount["target"] == f"/model/{name}"
        assert mount["read_only"] is True
        assert not os.path.islink(mount["source"]), "the end of both hops: a bind of a link would need the whole cache"
        assert Path(mount["source"]).read_bytes() == site.nas.files[name]


def test_a_second_run_changes_nothing(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    before = {path: os.lstat(path) for path in site.dst.rglob("*")}
    result = site.made(site.tree("page15/*"))
    assert (result["made"], result["empty"], result["removed"]) == (0, 0, 0)
    for path, stat in before.items():
        if path.name not in {"lock", ".sparkbuild"}:
            assert os.lstat(path).st_ctime_ns == stat.st_ctime_ns, path


def test_links_cost_the_mirror_no_reading(site: Site) -> None:
    """Ctime and link count of its files were moved by us: they are believed as before."""
    site.mirrored("page15/*")
    assert site.read_to_check("page15/*") == []
    site.made(site.tree("page15/*"))
    assert site.read_to_check("page15/*") == []
    site.made(site.tree(subtree="draft"))  # removes links
    assert site.read_to_check("page15/*") == []


def test_a_file_that_was_changed_is_not_believed_for_being_linked(site: Site) -> None:
    site.mirrored("page15/*")
    with site.blob(SHARD).open("r+b") as file:
        file.write(b"evil")
    site.made(site.tree())
    assert site.mirrored("page15/*")["repaired_chunks"] == 1
    texts = site.texts(site.tree())
    assert texts == [f"{SHARD} is not the file {site.blob(SHARD)}"], "a file with two names is mended apart"


def test_a_subtree_is_the_folder_itself(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree(subtree="draft", target="/draft"))
    assert site.names() == ["config.json", "model.safetensors"]
    assert same(site.dst / "model.safetensors", site.blob("draft/model.safetensors"))


def test_the_binds_of_a_subtree(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*", subtree="page15", target="/rows/"))
    assert site.names() == ["engram-01.bin", "engram-14.bin"]
    assert [mount["target"] for mount in site.look()["mounts"]] == [
        "/rows/",
        "/rows/engram-01.bin",
        "/rows/engram-14.bin",
    ]


def test_what_the_mirror_has_is_linked_and_not_bound(site: Site) -> None:
    site.mirrored("page15/engram-14.bin")
    assert site.made(site.tree("page15/*"))["empty"] == 1
    assert same(site.dst / PAGES[0], site.blob(PAGES[0]))


def test_real_files_of_a_snapshot(site: Site) -> None:
    site.nas.add("tokenizer.json", b"real", REAL)
    site.nas.add("page15/real.bin", b"a real one", REAL)
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    assert (site.dst / "tokenizer.json").read_bytes() == b"real"
    sources = {mount["target"]: mount["source"] for mount in site.look()["mounts"]}
    assert sources["/model/page15/real.bin"] == str(site.nas.snapshot / "page15/real.bin")


def test_a_cache_that_is_reached_by_a_link_keeps_its_name(site: Site, tmp_path: Path) -> None:
    """No `realpath`: what an operator calls /mnt/nas stays that."""
    site.nas.root.rename(tmp_path / "volume7")
    (tmp_path / "nas").symlink_to("volume7")
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    assert all(mount["source"].startswith(f"{tmp_path}/nas/blobs/") for mount in site.look()["mounts"][1:])


def test_composed_links_lead_to_blobs_and_local_files_lie_over_them(site: Site, tmp_path: Path) -> None:
    shard, places = safetensors({"layers.1.engram.embed.weight": 3 * CHUNK, "layers.1.wkv.weight": 100})
    source = tmp_path / "shard"
    source.write_bytes(shard)
    (tmp_path / "local.json").write_text("{}")
    start = places["layers.1.engram.embed.weight"][0]
    extents = [[0, start + 500], [places["layers.1.wkv.weight"][0], len(shard)]]
    over = site.over(
        "rows", [entry(SHARD, source, extents=extents), entry("engram-local.json", tmp_path / "local.json")]
    )
    site.mirrored()
    result = site.made(site.composed(over))
    assert (result["made"], result["empty"], result["mounts"]) == (2, 0, 1)
    assert site.names() == sorted([*site.nas.files, "engram-local.json"])
    assert same(site.dst / SHARD, over / SHARD)
    assert (site.dst / SHARD).stat().st_blocks * 512 < CHUNK, "sparse as it was: a link costs nothing"
    for name in set(site.nas.files) - {SHARD}:
        assert os.readlink(site.dst / name) == str(site.blob(name))
        assert (site.dst / name).read_bytes() == site.nas.files[name]
    assert site.texts(site.composed(over)) == []


def test_an_index_that_names_a_shard_which_is_nowhere_is_refused(site: Site, tmp_path: Path) -> None:
    site.mirrored("model-00002-of-00002.safetensors")
    error = site.refused(site.composed())
    assert error["kind"] == "integrity"
    assert error["found"] == "1 file missing: model-00002-of-00002.safetensors"
    (tmp_path / "shard").write_bytes(b"x" * 100)
    over = site.over("rows", [entry("model-00002-of-00002.safetensors", tmp_path / "shard")])
    site.made(site.composed(over))


def test_a_sparse_copy_without_the_other_tensors_is_refused(site: Site, tmp_path: Path) -> None:
    """They would load as zeros, and nobody would be told."""
    shard, places = safetensors({"layers.1.engram.embed.weight": 1000, "layers.1.wkv.weight": 100})
    (tmp_path / "shard").write_bytes(shard)
    start = places["layers.1.engram.embed.weight"][0]
    over = site.over("rows", [entry(SHARD, tmp_path / "shard", extents=[[0, start + 500]])])
    site.mirrored()
    error = site.refused(site.composed(over))
    assert error["kind"] == "config"
    assert error["found"] == "1 tensors in holes: layers.1.wkv.weight"
    assert error["next"] == "set complete_shard = true in that staging block"
    assert not site.dst.exists() or site.names() == []


def test_two_blocks_with_one_name(site: Site, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    one, two = (site.over(name, [entry("config.json", tmp_path / "x")]) for name in ("one", "two"))
    site.mirrored()
    assert "a file of the same name" in site.refused(site.composed(one, two))["what"]


def test_a_name_that_is_file_and_folder(site: Site, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    over = site.over("one", [entry("draft", tmp_path / "x")])
    site.mirrored()
    assert site.refused(site.composed(over))["what"] == "a name is a file and a folder"


def test_a_mirror_that_is_not_staged(site: Site) -> None:
    error = site.refused(site.tree())
    assert (error["kind"], error["where"]) == ("integrity", str(site.mirror))
    assert not site.mirror.exists(), "looking made no folder"


def test_a_mirror_of_a_new_commit(site: Site) -> None:
    site.mirrored("page15/*")
    what = site.tree("page15/*")
    site.made(what)
    (site.nas.folder / "snapshots" / OTHER).mkdir()
    for name in ("config.json", SHARD):
        (site.nas.folder / "snapshots" / OTHER / name).symlink_to(f"../../blobs/{site.blob(name).name}")
    site.nas.ref("main", OTHER)
    site.mirrored("page15/*", "model-00002-of-00002.safetensors")
    texts = site.texts(what)
    assert any("of commit" in text or "is staged otherwise" in text or "is missing" in text for text in texts), texts
    site.made(site.tree())
    assert site.names() == ["config.json", SHARD]
    assert site.look(site.tree())["commit"] == OTHER
    assert site.texts(site.tree()) == []


def test_a_mirror_staged_anew_without_a_change_is_no_problem(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    (site.mirror / ".sparkbuild/ledger.json").unlink()
    assert site.texts(site.tree("page15/*")) != []
    site.mirrored("page15/*")
    assert site.texts(site.tree("page15/*")) == []
    shutil.rmtree(site.nas.root)
    assert site.texts(site.tree("page15/*")) == [], "the source is not asked"


def test_a_blob_that_was_replaced_is_linked_anew(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    site.blob(SHARD).unlink()
    assert [text.partition(" ")[0] for text in site.texts()] == [f"{SHARD}:"]
    site.mirrored("page15/*")
    assert site.texts(site.tree("page15/*")) == [f"{SHARD} is not the file {site.blob(SHARD)}"]
    assert site.made(site.tree("page15/*"))["made"] == 1
    assert site.texts(site.tree("page15/*")) == []


def replaced(dst: Path) -> None:
    """The same bytes in another file."""
    data = (dst / SHARD).read_bytes()
    (dst / SHARD).unlink()
    (dst / SHARD).write_bytes(data)


def linked_to(path: Path, text: str) -> None:
    path.unlink()
    path.symlink_to(text)


def edited(dst: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """A manifest that somebody had an editor on."""
    place = dst / ".sparkbuild/mounts.json"
    value = json.loads(place.read_text())
    change(value)
    place.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda dst: (dst / PAGES[0]).write_bytes(b"x"), f"{PAGES[0]} is no empty file of its own"),
        (lambda dst: (dst / SHARD).unlink(), f"{SHARD} is missing"),
        (lambda dst: (dst / "extra").touch(), "extra is not of the export"),
        (lambda dst: (dst / "draft/extra").symlink_to("x"), "draft/extra is not of the export"),
        (replaced, f"{SHARD} is not the file /"),
        (lambda dst: (dst / SHARD).rename(dst / "gone"), "gone is not of the export"),
        (lambda dst: linked_to(dst / SHARD, "/x"), f"{SHARD} is a symbolic link, wanted a regular file"),
        (lambda dst: (dst / PAGES[1]).unlink(), f"{PAGES[1]} is missing"),
        (lambda dst: edited(dst, lambda made: made["mounts"].pop()), f"{PAGES[1]} is an empty file, and its manifest"),
        (lambda dst: edited(dst, lambda made: made["mounts"].pop(0)), "its manifest mounts /"),
        (
            lambda dst: edited(dst, lambda made: made["mounts"].append({"source": "/etc", "target": "/model/etc"})),
            "its manifest mounts /etc at /model/etc",
        ),
        (lambda dst: edited(dst, lambda made: made["mounts"][0].update(read_only=False)), "its manifest mounts /"),
    ],
)
def test_what_is_seen(site: Site, spoil: object, text: str) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    assert site.texts() == site.texts(site.tree("page15/*")) == []
    spoil(site.dst)  # type: ignore[operator]
    shutil.rmtree(site.nas.root)  # nobody asks the source
    found = site.texts()
    assert any(one.startswith(text) for one in found), found
    whole = {"store": str(site.store), "dst": str(site.dst), "what": site.tree("page15/*"), "full": True}
    assert {one["text"] for one in look.observe(whole)["problems"]} >= set(found)


def test_a_full_look_holds_a_manifest_against_the_ledgers(site: Site) -> None:
    """What was taken out of folder and manifest alike is missed all the same; a quick look believes the manifest."""
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    whole = {"store": str(site.store), "dst": str(site.dst), "what": site.tree("page15/*"), "full": True}
    assert look.observe(whole)["problems"] == []
    (site.dst / SHARD).unlink()
    edited(site.dst, lambda made: made.update(files=[one for one in made["files"] if one["name"] != SHARD]))
    assert site.texts(site.tree("page15/*")) == []
    assert [one["text"] for one in look.observe(whole)["problems"]] == [f"{SHARD} is staged otherwise by now"]


def test_a_composed_folder_that_is_not_as_it_was(site: Site, tmp_path: Path) -> None:
    shard, places = safetensors({"layers.1.engram.embed.weight": CHUNK})
    (tmp_path / "shard").write_bytes(shard)
    over = site.over("rows", [entry(SHARD, tmp_path / "shard", extents=[[0, len(shard) - 100]])])
    assert places
    site.mirrored()
    site.made(site.composed(over))
    whole = {"store": str(site.store), "dst": str(site.dst), "what": site.composed(over), "full": True}
    assert look.observe(whole)["problems"] == []
    linked_to(site.dst / "config.json", "/srv/models/other.json")
    (over / SHARD).unlink()
    texts = [one["text"] for one in look.observe(whole)["problems"]]
    assert f"{SHARD}: the staged file {over / SHARD} is missing" in texts
    assert f"config.json leads to '/srv/models/other.json', wanted '{site.blob('config.json')}'" in texts


def test_a_folder_that_holds_something_else_is_left_alone(site: Site) -> None:
    site.mirrored("page15/*")
    site.dst.mkdir(parents=True)
    (site.dst / "thesis.txt").write_text("the only copy")
    error = site.refused(site.tree())
    assert (error["kind"], error["found"]) == ("config", "thesis.txt")
    assert (site.dst / "thesis.txt").read_text() == "the only copy"
    assert site.names() == ["thesis.txt"]


def test_an_export_that_another_tool_made_is_taken_as_it_is(site: Site) -> None:
    site.mirrored("page15/*", "draft/*")
    for name in set(site.nas.files) - {*PAGES, "draft/model.safetensors", "draft/config.json"}:
        (site.dst / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(site.blob(name), site.dst / name)
    assert site.made(site.tree())["made"] == 0
    assert site.texts(site.tree()) == []


@pytest.mark.parametrize("where", ["..", "inside"])
def test_one_inside_the_other(site: Site, where: str) -> None:
    site.mirrored("page15/*")
    site.dst = site.mirror.parent if where == ".." else site.mirror / "exports"
    assert "one inside the other" in site.refused(site.tree())["what"]


def test_binds_that_match_nothing(site: Site) -> None:
    site.mirrored("page15/*")
    error = site.refused(site.tree("page51/*"))
    assert (error["kind"], error["what"]) == ("config", "nothing of the snapshot matches 'page51/*' of `binds`")


def test_a_bound_file_that_is_gone(site: Site) -> None:
    site.mirrored("page15/*")
    site.nas.blob(PAGES[0]).unlink()
    error = site.refused(site.tree("page15/*"))
    assert error["kind"] == "integrity"
    assert "is not there" in error["found"]


def test_an_empty_subtree(site: Site) -> None:
    site.mirrored("page15/*")
    assert "nothing of the snapshot is in this subtree" in site.refused(site.tree(subtree="draft-exl3"))["what"]


def test_two_file_systems(site: Site) -> None:
    """By a shim: the mount of another disk needs root."""
    shim = "import os\ndef link(*a, **k): raise OSError(18, 'Invalid cross-device link')\nos.link = link"
    site.mirrored("page15/*")
    answer = site.export(site.tree(), shim=shim)
    assert answer.code == 1
    assert "different file systems" in answer.last["what"]
    assert answer.last["where"] == str(site.dst)
    assert str(site.mirror) in answer.last["found"]
    assert "`path`" in answer.last["next"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "sparkbuild-export", "version": 9}', '"x"'])
def test_a_damaged_manifest(site: Site, text: str) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    (site.dst / ".sparkbuild/mounts.json").write_text(text)
    fact = site.look()
    assert fact["present"] is False
    assert "unreadable" in fact["problem"]
    assert site.made(site.tree("page15/*"))["made"] == 0
    assert site.texts() == []


def test_names_in_a_manifest_do_not_leave_the_folder(site: Site) -> None:
    site.mirrored("page15/*")
    site.made(site.tree("page15/*"))
    place = site.dst / ".sparkbuild/mounts.json"
    value = json.loads(place.read_text())
    value["empty"].append("../../x")
    place.write_text(json.dumps(value))
    assert site.look()["present"] is False
