"""What has gone wrong when people staged models by hand, each story a test; docs/staging.md lists the others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.nodes.rpc import pack
from sparkbuild.workspace.load import load
from tests.agent.driver import CHUNK, call, key, look, problems
from tests.staging.checkpoint import Checkpoint, make
from tests.staging.hubcache import ABSOLUTE, COMMIT, LINK, OTHER, REAL, TWO_HOP, HubCache
from tests.staging.mirror import Mirror
from tests.staging.readers import Packed
from tests.workspace.helpers import RECIPE, healthy, put

SHARDS = [f"model-{number:05}-of-00051.safetensors" for number in range(1, 52)]
HUB = """
[[staging]]
id = "hub"
kind = "hub-mirror"
{src}repos = ["org/one"]

[[staging.exports]]
kind = "tree"
id = "model"
target = "/model"
"""


@pytest.fixture
def nas(tmp_path: Path) -> HubCache:
    """A cache of two hops with 51 shards, all of one size, and page15 as real files in the snapshot."""
    cache = HubCache(tmp_path / "nas/hub")
    for name in SHARDS:
        cache.add(name, name.encode() * 500, TWO_HOP)
    cache.add("config.json", b"{}", lfs=False)
    cache.add("page15/rows.bin", b"rows" * 20_000, REAL)
    cache.ref()
    return cache


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "node/hub")


def result(mirror: Mirror, nas: HubCache, *skip: str) -> dict[str, Any]:
    """Stage it; what the agent says it did."""
    answer = mirror.call(nas.root, skip=skip)
    assert answer.code == 0, answer.events
    return answer.last


def stamps(folder: Path) -> dict[str, tuple[int, ...]]:
    """What another program would notice of each file and link: inode, size, mtime, ctime, names."""
    found = {}
    for path in folder.rglob("*"):
        seen = os.lstat(path)
        if ".sparkbuild" not in path.parts and (path.is_symlink() or not path.is_dir()):
            found[str(path)] = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_nlink)
    return found


# -- mirrors ----------------------------------------------------------------------------------------------------------


def test_51_shards_that_were_read_through_the_nas(nas: HubCache, mirror: Mirror) -> None:
    """A mirror copied the first hop, a link into the shared store: its 51 shards were on the NAS all the time. Here the
    NAS goes away, and every file is still read.
    """
    result(mirror, nas, "page15/*")
    nas.root.parent.rename(nas.root.parent.with_name("gone"))
    mirror.holds(nas, skip=("page15/*",))
    assert problems(look(mirror.folder, full=True)) == []


def test_page15_that_was_copied_silently(nas: HubCache, mirror: Mirror) -> None:
    """195 GB of rows lie in the snapshot as real files, with blobs of their own besides: a copy of the tree took both,
    twice, and filled the disk. What `skip` names is neither read nor written nor counted.
    """
    blob = nas.add("page15/linked.bin", b"more rows" * 9_000, LINK)
    fact = look(mirror.folder, what={**what(nas), "skip": ["page15/*"]})
    made = result(mirror, nas, "page15/*")
    wanted = sum(len(data) for path, data in nas.files.items() if not path.startswith("page15"))
    assert fact["to_write"] == made["bytes"] == made["read"] == wanted + len(COMMIT)
    assert not [name for name in mirror.names() if "page15" in name or blob in name]


def what(nas: HubCache) -> dict[str, Any]:
    return {"kind": "hub-mirror", "cache": str(nas.root), "repo": nas.repo, "revision": "main", "skip": []}


def test_a_copy_that_could_not_be_run_twice(nas: HubCache, mirror: Mirror) -> None:
    """`copytree` into a tree that is there ends at the first link. The second run here reads nothing of the source,
    writes nothing, and no file looks touched to anyone.
    """
    result(mirror, nas)
    before = stamps(mirror.folder)
    again = result(mirror, nas)
    assert (again["read"], again["bytes"], again["links"], again["removed"]) == (0, 0, 0, 0)
    assert stamps(mirror.folder) == before


def test_a_mirror_that_was_called_complete_while_targets_were_absent(nas: HubCache, mirror: Mirror) -> None:
    """Sizes and mtimes out of a cache that lies said "copied already", and the targets of links were not there."""
    result(mirror, nas)
    for name in SHARDS[:3]:
        (mirror.folder / "blobs" / nas.blob(name).name).unlink()
    told = problems(look(mirror.folder))
    assert sorted(told) == [f"{name} (blob {nas.blob(name).name[:12]}...) is missing" for name in SHARDS[:3]]
    assert result(mirror, nas)["copied"] == 3
    mirror.holds(nas)


def test_blobs_that_were_linked_to_another_shard_of_the_same_size(nas: HubCache, mirror: Mirror) -> None:
    """Files of one size were taken for one file, and four blobs became hard links of other shards: the engine found a
    key twice. A mirror like that, made by hand, is not adopted, and nothing is written through the shared names.
    """
    mirror.folder.mkdir(parents=True)
    shutil.copytree(nas.folder / "snapshots", mirror.folder / "snapshots", symlinks=True)
    (mirror.folder / "blobs").mkdir()
    blobs = [mirror.folder / "blobs" / nas.blob(name).name for name in SHARDS]
    for name, blob in zip(SHARDS, blobs, strict=True):
        blob.write_bytes(nas.files[name])
    for wrong, right in zip(blobs[:4], blobs[10:14], strict=True):
        wrong.unlink()
        wrong.hardlink_to(right)
    made = result(mirror, nas)
    assert made["copied"] >= 4
    mirror.holds(nas)
    assert len({blob.stat().st_ino for blob in blobs}) == len(blobs), "each is a file of its own"


def test_blobs_that_were_duplicated_into_the_snapshot(tmp_path: Path, nas: HubCache, mirror: Mirror) -> None:
    """`realpath` of a source that is a link itself led "outside", so every blob was written into the snapshot as a
    real file, again on each serve. A mirror that was left like that is put right: links, and one copy of the bytes.
    """
    result(mirror, nas)
    snapshot = mirror.folder / "snapshots" / COMMIT
    for name in SHARDS[:5]:
        (snapshot / name).unlink()
        (snapshot / name).write_bytes(nas.files[name])
    (tmp_path / "link").symlink_to(nas.root.parent)
    answer = mirror.call(tmp_path / "link/hub")
    assert (answer.code, answer.last["read"]) == (0, 0)
    mirror.holds(nas)
    assert all((snapshot / name).is_symlink() for name in SHARDS)


def test_a_mirror_that_is_seen_elsewhere_in_a_container(tmp_path: Path, nas: HubCache, mirror: Mirror) -> None:
    """An absolute link dangles where the cache is mounted under another path. All links here are relative."""
    nas.add("absolute.bin", b"absolute" * 99, ABSOLUTE)
    result(mirror, nas)
    elsewhere = tmp_path / "root/.cache/huggingface/hub"
    elsewhere.parent.mkdir(parents=True)
    mirror.cache.rename(elsewhere)
    Mirror(elsewhere).holds(nas)


@pytest.mark.parametrize("there", ["an empty folder", "nothing"])
def test_a_nas_that_is_not_mounted(nas: HubCache, mirror: Mirror, there: str) -> None:
    """The cache's place was an empty folder that docker had made, and ranks found no model. Staging from it is refused,
    and costs nothing of what was staged; that it is right needs no source.
    """
    result(mirror, nas, "page15/*")
    before = stamps(mirror.folder)
    nas.root.rename(nas.root.with_name("away"))
    if there == "an empty folder":
        nas.root.mkdir()
    said = mirror.refused(nas.root)
    assert said["kind"] == "config"
    assert said["where"].startswith(str(nas.root))
    assert said["what"] == f"the hub cache is {'empty' if there == 'an empty folder' else 'not there'}"
    assert "findmnt -T" in said["next"]
    assert problems(look(mirror.folder)) == []
    assert stamps(mirror.folder) == before


def test_the_blobs_are_counted_and_not_the_links(nas: HubCache, mirror: Mirror) -> None:
    """A snapshot of links has next to no size of its own, and was taken for one that is not there."""
    fact = look(mirror.folder, what=what(nas))
    assert fact["to_write"] == sum(map(len, nas.files.values())) + len(COMMIT)


def test_a_wrapper_that_said_done(nas: HubCache, mirror: Mirror) -> None:
    """A download that never ran left its "done" behind. A ref to a revision of which nothing is there is refused."""
    nas.ref("main", OTHER)
    said = mirror.refused(nas.root)
    assert said["kind"] == "config"
    assert OTHER[:12] in str(said)
    (nas.folder / "snapshots" / OTHER).mkdir()
    assert mirror.refused(nas.root)["found"] == "an empty snapshot"
    assert not (mirror.folder / "snapshots").exists()


# -- packed rows ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Ranks 0 and 1 of 2 have as many rows each, so their files have one size."""
    return make(tmp_path_factory.mktemp("tables") / "hub", vocab=2500, as_hub_cache=True)


def asked(tables: Checkpoint, dst: Path, rank: int, verify: str = "quick") -> dict[str, Any]:
    """The packed rows of one of two ranks."""
    what = {"kind": "packed", "model": str(tables.folder), "layers": [], "split": "even", "tp": 2, "rank": rank}
    return {"dst": str(dst), "key": key(str(rank)), "parts": {}, "what": what, "verify": verify}


def rows(tables: Checkpoint, dst: Path, rank: int, verify: str = "quick") -> dict[str, Any]:
    """Stage the packed rows of one of two ranks; what the agent says."""
    answer = call("stage", asked(tables, dst, rank, verify))
    assert answer.code == 0, answer.events
    return answer.last


def is_right(tables: Checkpoint, dst: Path, rank: int) -> None:
    for layer, table in tables.tables.items():
        low, high = table.rows * rank // 2, table.rows * (rank + 1) // 2
        reader = Packed(dst / f"engram-l{layer}-r{rank}of2.bin", layer, low, high, table.rows)
        assert all(row == table.row(number) for number, row in enumerate(reader.rows(), low))
        reader.close()


def test_the_folder_that_was_not_there(tables: Checkpoint, tmp_path: Path) -> None:
    """The first packing aborted, for nobody had made the folder that it packs into."""
    dst = tmp_path / "not/there/yet/engram"
    rows(tables, dst, 1)
    is_right(tables, dst, 1)


@pytest.mark.parametrize("header", ["of the other rank", "of this rank"])
def test_the_shard_of_another_rank_has_the_same_size(tables: Checkpoint, tmp_path: Path, header: str) -> None:
    """With an even split all ranks' files may have one size, by which a packer called them complete; and a reader that
    finds the right header serves the rows behind it, whosever they are.
    """
    rows(tables, tmp_path / "0", 0)
    rows(tables, tmp_path / "1", 1)
    name, dst = "engram-l{}-r{}of2.bin", tmp_path / "dst"
    dst.mkdir()
    sizes = []
    for layer in tables.tables:
        other, own = (tmp_path / f"{rank}" / name.format(layer, rank) for rank in (0, 1))
        sizes.append(other.stat().st_size == own.stat().st_size)
        data = other.read_bytes()
        if header == "of this rank":
            data = own.read_bytes()[:4096] + data[4096:]
        (dst / own.name).write_bytes(data)
    assert any(sizes)
    answer = call("stage", asked(tables, dst, 1))
    assert answer.code == 1
    assert all(name.format(layer, 1) in answer.last["found"] for layer in tables.tables)
    for path in dst.iterdir():  # an operator moves them away, as he is told
        path.unlink()
    rows(tables, dst, 1)
    is_right(tables, dst, 1)


def test_right_shards_of_another_packer_are_not_packed_again(tables: Checkpoint, tmp_path: Path) -> None:
    """Operators have packed by hand, 48 GB for each rank: that is compared with the source, and kept."""
    rows(tables, tmp_path / "1", 1)
    dst = tmp_path / "dst"
    dst.mkdir()
    for path in (tmp_path / "1").glob("*.bin"):
        shutil.copy(path, dst)
    before = stamps(dst)
    made = rows(tables, dst, 1, "full")
    assert (made["copied"], made["bytes"], made["adopted"]) == (0, 0, 2)
    assert stamps(dst) == before


def test_a_record_that_was_spoilt_is_packed_again_alone(tables: Checkpoint, tmp_path: Path) -> None:
    """One row of a rank was another: sizes and headers were right, and the model stayed fluent."""
    rows(tables, tmp_path, 1)
    path = tmp_path / "engram-l1-r1of2.bin"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(4096 + 264 * 777)
        file.write(tables.tables[1].row(777))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(problems(look(tmp_path, key("1")))) == 1
    made = rows(tables, tmp_path, 1)
    assert (made["copied"], made["repaired_chunks"], made["bytes"]) == (0, 1, CHUNK)
    is_right(tables, tmp_path, 1)


# -- what is written and what is run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["src", "dst"])
def test_a_key_that_a_table_above_it_took(tmp_path: Path, name: str) -> None:
    """The path of the cache stood below a table's header in a config, went into that table, and was ignored: each node
    fell back to a cache of its own. Such a key is an error that says where it belongs.
    """
    root = healthy(tmp_path)
    src = "" if name == "src" else 'src = "/srv/models/hub"\n'
    blocks = HUB.format(src=src) + f'{name} = "/srv/models/x"\n'
    put(root, "recipes/demo/recipe.toml", RECIPE[: RECIPE.index("[[staging]]")] + blocks)
    problem = load(root).problems["recipes/demo"]
    assert problem.what == f"`{name}` stands in the wrong table"
    assert problem.wanted == f"`{name}` in [[staging]]"
    assert problem.found.startswith("[[staging.exports]] on line")
    assert "[[staging]]" in problem.next


def test_a_key_that_a_cluster_took(tmp_path: Path) -> None:
    """The same in config.toml: no table of a cluster or a node takes a key that it does not know."""
    config = '[nodes.local]\nconnection = "local"\n\n[clusters.local]\nnodes = ["local"]\nhf_cache_dir = "/mnt/nas"\n'
    put(healthy(tmp_path), "config.toml", config)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert "hf_cache_dir" in str(caught.value)
    assert "config.toml:6" in str(caught.value)


def test_an_old_agent_is_never_run_by_a_new_sparkbuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node ran last week's binary, with the bug that had been mended. The agent is named by its content, so another
    program is another name, and a node that lacks it is sent it.
    """
    before = pack.name()
    shutil.copytree(pack.PACKAGE, tmp_path / "sparkbuild", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "sparkbuild/agent/stage/stage.py").open("a") as file:
        file.write("# mended\n")
    monkeypatch.setattr(pack, "PACKAGE", str(tmp_path / "sparkbuild"))
    for cached in (pack.archive, pack.name, pack._sources):
        cached.cache_clear()
    try:
        assert pack.name() != before
    finally:
        monkeypatch.undo()
        for cached in (pack.archive, pack.name, pack._sources):
            cached.cache_clear()
    assert pack.name() == before
