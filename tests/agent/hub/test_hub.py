"""Mirrors of hub repositories: every layout is read, and huggingface_hub itself takes the mirror for whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.disk import nas
from sparkbuild.agent.hub import plan
from sparkbuild.agent.source import shards
from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.plan import of_what
from sparkbuild.agent.stage import verify
from sparkbuild.agent.wire.protocol import AgentError
from sparkbuild.staging.words import unchecked
from tests.agent.driver import call, key, problems
from tests.staging.hubcache import (
    ABSOLUTE,
    COMMIT,
    LINK,
    OTHER,
    REAL,
    REPO,
    TWO_HOP,
    TWO_HOP_ABSOLUTE,
    HubCache,
    etag_of,
    usual,
    xet_of,
)
from tests.staging.mirror import Mirror


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "nas" / "hub"


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path / "node" / "hub")


def planned(cache: Path, revision: str = "main", skip: tuple[str, ...] = (), dst: Path | None = None) -> FileSet:
    what = {"kind": "hub-mirror", "cache": str(cache), "repo": REPO, "revision": revision, "skip": list(skip)}
    return of_what(what, "/", str(dst or ""), Archives())


def refused(cache: Path, **more: Any) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        planned(cache, **more)
    return caught.value.fields


def test_the_usual_cache(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    cache.leftovers()
    cache.write_tree()
    about = mirror.stage(source)
    mirror.holds(cache)
    assert mirror.names() == [
        *sorted(f"blobs/{cache.blob(path).name}" for path in cache.files),
        "refs/main",
        *sorted(f"snapshots/{COMMIT}/{path}" for path in cache.files),
        f"trees/{COMMIT}.json",
    ]
    total = sum(map(len, cache.files.values()))
    skipped = {"files": 0, "bytes": 0}
    assert about == {"repo": REPO, "commit": COMMIT, "ref": "main", "files": 4, "bytes": total, "skipped": skipped}


def test_what_is_known_of_each_file(source: Path) -> None:
    cache = usual(source)
    wanted = {item.name: item for item in planned(source).files}
    git, lfs = (cache.blob(path).name for path in ("config.json", "model-00001-of-00002.safetensors"))
    assert (wanted[f"blobs/{git}"].sha1, wanted[f"blobs/{git}"].sha256) == (git, "")
    assert (wanted[f"blobs/{lfs}"].sha1, wanted[f"blobs/{lfs}"].sha256) == ("", lfs)
    assert wanted[f"blobs/{lfs}"].identity == {"kind": "hub-blob", "etag": lfs}
    assert wanted["refs/main"].source == {"kind": "text", "text": COMMIT}


def test_two_hop_shared_store(source: Path, mirror: Mirror) -> None:
    """Files of the shared store are named by a Xet hash, by which nothing can be checked: the blob's name is taken."""
    cache = usual(source)
    shard = cache.add("deep/er/shard.bin", b"shared" * 999, TWO_HOP)
    cache.add("absolute.bin", b"stored" * 999, TWO_HOP_ABSOLUTE)
    names = [item.name for item in planned(source).files]
    assert f"blobs/{shard}" in names
    assert not [name for name in names if xet_of(b"shared" * 999) in name]
    mirror.stage(source)
    mirror.holds(cache)
    blob = mirror.folder / "blobs" / shard
    assert blob.is_file()
    assert not blob.is_symlink()
    assert os.readlink(mirror.folder / f"snapshots/{COMMIT}/deep/er/shard.bin") == f"../../../../blobs/{shard}"
    assert not (mirror.cache / "blobs").exists()


def test_page15_real_files_skipped(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    cache.add("engram/page15/rank0-page15.bin", bytes(70000), REAL)
    cache.add("engram/page15/rank1-page15.bin", bytes(90000), REAL)
    cache.add("engram/manifest.json", b"{}", REAL)
    cache.add("drafts/linked.pt", b"pickle" * 20)
    cache.write_tree()
    skip = ("engram/page15/**", "*.pt")
    about = mirror.stage(source, skip=skip)
    mirror.holds(cache, skip=skip)
    assert about["skipped"] == {"files": 3, "bytes": 160120}
    assert etag_of(b"pickle" * 20) not in str(mirror.names())
    assert (mirror.folder / f"snapshots/{COMMIT}/engram/manifest.json").is_file()
    # with the tree of the commit, huggingface_hub would call the mirror incomplete
    assert not (mirror.folder / "trees").exists()


def test_skipped_links_may_dangle(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    cache.add("page15/table.bin", b"x" * 100)
    cache.blob("page15/table.bin").unlink()
    mirror.stage(source, skip=("page15/",))
    mirror.holds(cache, skip=("page15/*",))


def test_a_glob_that_skips_nothing_is_told(source: Path) -> None:
    usual(source)
    assert planned(source, skip=("pagel5/**",)).about["unused_skip"] == ["pagel5/**"]


def test_the_tree_of_a_real_file_is_used(source: Path) -> None:
    cache = usual(source)
    cache.add("table.bin", b"rows" * 50, REAL)
    cache.add("notes.txt", b"text", REAL, lfs=False)
    name = f"snapshots/{COMMIT}/"
    plain = {item.name: item for item in planned(source).files}
    identity = {"kind": "hub-file", "repo": REPO, "commit": COMMIT, "path": "table.bin"}
    version = plain[f"{name}table.bin"].source["version"]
    assert plain[f"{name}table.bin"].identity == {**identity, "version": version}
    assert plain[f"{name}table.bin"].sha256 == ""
    cache.write_tree()
    known = {item.name: item for item in planned(source).files}
    assert known[f"{name}table.bin"].sha256 == etag_of(b"rows" * 50)
    assert known[f"{name}table.bin"].identity == {**identity, "lfs_sha256": etag_of(b"rows" * 50)}
    assert known[f"{name}notes.txt"].sha1 == etag_of(b"text", lfs=False)


def test_realpath_of_a_symlinked_cache(tmp_path: Path, source: Path, mirror: Mirror) -> None:
    """The source is a link to the NAS, as a ~/.cache/huggingface often is."""
    cache = usual(source)
    cache.add("shared.bin", b"shared" * 99, TWO_HOP)
    linked = tmp_path / "home" / "cache"
    linked.parent.mkdir()
    linked.symlink_to(source.parent)
    mirror.stage(linked / "hub")
    mirror.holds(cache)
    assert not [name for name in mirror.names() if name.startswith("snapshots/") and not mirror.is_link(name)]


def test_a_repository_that_is_a_link(tmp_path: Path, mirror: Mirror) -> None:
    """A cache without hub/, made visible in a hub/ by a relative link."""
    cache = usual(tmp_path / "local")
    cache.add("shared.bin", b"shared" * 99, TWO_HOP)
    (tmp_path / "local/hub").mkdir()
    (tmp_path / "local/hub" / cache.name).symlink_to(f"../{cache.name}")
    mirror.stage(tmp_path / "local/hub")
    mirror.holds(cache)


def test_absolute_links(tmp_path: Path, source: Path, mirror: Mirror) -> None:
    """Old caches have them, and they name the place where the cache was then."""
    cache = usual(source, moved=tmp_path / "gone" / "hub")
    cache.add("a/absolute.bin", b"absolute" * 9, ABSOLUTE)
    cache.add("stored.bin", b"stored" * 9, TWO_HOP_ABSOLUTE)
    mirror.stage(source)
    mirror.holds(cache)
    assert os.readlink(mirror.folder / f"snapshots/{COMMIT}/a/absolute.bin").startswith("../../../blobs/")


def test_cache_without_hub(tmp_path: Path, mirror: Mirror) -> None:
    cache = usual(tmp_path / "plain")
    mirror.stage(tmp_path / "plain")
    mirror.holds(cache)


def test_the_wrong_level_is_told_not_guessed(tmp_path: Path) -> None:
    usual(tmp_path / "home/hub")
    (tmp_path / "home/models--gpt2").mkdir()
    said = refused(tmp_path / "home")
    assert said["what"] == f"the hub cache has no repository {REPO}"
    assert said["found"] == "models--gpt2"
    assert said["next"] == f"it is in {tmp_path}/home/hub: give this as `src`"
    (tmp_path / "flat/hub").mkdir(parents=True)
    usual(tmp_path / "flat")
    assert refused(tmp_path / "flat/hub")["next"] == f"it is in {tmp_path}/flat: give this as `src`"
    assert refused(tmp_path / "flat" / HubCache(tmp_path / "flat").name)["next"].startswith(
        f"it is in {tmp_path}/flat:"
    )
    assert refused(tmp_path / "nowhere")["what"] == "the hub cache is not there"
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    said = refused(tmp_path / "model")["next"]
    assert said == f'{tmp_path}/model is a model itself, it has config.json: kind = "files" stages it, without `repos`'


def test_a_cache_without_links(source: Path, mirror: Mirror) -> None:
    """As HF_HUB_DISABLE_SYMLINKS=1 makes it."""
    cache = HubCache(source)
    cache.add("config.json", b"{}", REAL, lfs=False)
    cache.add("deep/model.safetensors", b"weights" * 99, REAL)
    cache.ref()
    cache.write_tree()
    mirror.stage(source)
    mirror.holds(cache)


@pytest.mark.parametrize("text", [f"{COMMIT}\n", f" {COMMIT} \r\n"])
def test_newline_in_refs(source: Path, mirror: Mirror, text: str) -> None:
    cache = usual(source)
    cache.ref(text=text)
    mirror.stage(source)
    mirror.holds(cache)
    assert (mirror.folder / "refs/main").read_text() == COMMIT


def test_a_ref_that_is_none(source: Path) -> None:
    usual(source).ref(text="main")
    assert refused(source)["what"] == "a ref of the hub cache does not hold a commit"


def test_other_revisions(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    cache.ref("refs/pr/1")
    cache.ref("v1.0", OTHER)
    refs = [
        [item.name for item in planned(source, revision).files if item.name.startswith("refs/")]
        for revision in ("refs/pr/1", COMMIT)
    ]
    assert refs == [["refs/main", "refs/refs/pr/1"], ["refs/main"]]
    cache.ref("main", OTHER)
    assert not [item.name for item in planned(source, COMMIT).files if item.name.startswith("refs/")]
    mirror.stage(source, revision=COMMIT)
    mirror.holds(cache, revision=COMMIT)


def test_a_revision_that_is_not_there(source: Path) -> None:
    cache = usual(source)
    cache.ref("v1.0", OTHER)
    said = refused(source, revision="v2")
    assert said["what"] == "the hub cache has no revision v2"
    assert said["found"] == f"refs: main = {COMMIT[:12]}, v1.0 = {OTHER[:12]}; snapshots: {COMMIT}"
    cached = f"--cache-dir {source}; or give one"
    assert said["next"].startswith(f"hf download demo-org/demo-model --revision v2 {cached}")
    named = refused(source, revision="v1.0")
    assert OTHER in named["what"]
    assert named["next"].startswith(f"hf download demo-org/demo-model --revision {OTHER} {cached}")
    assert refused(source, revision=OTHER)["what"] == f"the hub cache has no revision {OTHER}"
    assert refused(source, revision="../x")["kind"] == "config"


def test_incomplete_download(source: Path) -> None:
    cache = usual(source)
    shard = cache.blob("model-00002-of-00002.safetensors")
    cache.write_tree()
    (cache.snapshot / "model-00002-of-00002.safetensors").unlink()
    shard.rename(f"{shard}.1a2b3c4d.incomplete")
    said = refused(source)
    assert said["kind"] == "integrity"
    assert said["found"] == (
        "1 of 4 files are missing: model-00002-of-00002.safetensors; "
        f"a download is unfinished: {shard.name}.1a2b3c4d.incomplete"
    )
    assert COMMIT in said["next"]
    assert planned(source, skip=("*-00002-*",)).about["files"] == 3


def test_incomplete_by_the_index(source: Path) -> None:
    cache = usual(source)
    (cache.snapshot / "model-00001-of-00002.safetensors").unlink()
    assert refused(source)["found"] == "1 of 2 files are missing: model-00001-of-00002.safetensors"
    assert planned(source, skip=("*.safetensors",)).about["files"] == 2


def test_an_index_in_blocks(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = HubCache(source)
    weights = {f"layers.{layer}.weight": f"model-{layer:05d}.safetensors" for layer in range(50)}
    cache.add("x/model.safetensors.index.json", json.dumps({"weight_map": weights}, indent=2).encode(), lfs=False)
    cache.ref()
    for block in (7, 100, 1000):
        monkeypatch.setattr(shards, "_BLOCK", block)
        assert refused(source)["found"].startswith(
            "50 of 50 files are missing: x/model-00000.safetensors, x/model-00001"
        )


def test_dangling_second_hop(source: Path) -> None:
    cache = usual(source)
    cache.add("shared.bin", b"shared" * 99, TWO_HOP)
    blob, xet = cache.blob("shared.bin"), xet_of(b"shared" * 99)
    stored = source / "blobs" / xet[:2] / xet
    stored.unlink()
    said = refused(source)
    assert said["what"] == "a link of the snapshot leads to nothing"
    assert said["where"] == str(cache.snapshot / "shared.bin")
    assert said["found"] == (
        f"{cache.snapshot}/shared.bin -> ../../blobs/{blob.name}; "
        f"{blob} -> ../../blobs/{xet[:2]}/{xet}; {stored} is not there"
    )


def test_dangling_first_hops(source: Path) -> None:
    cache = usual(source)
    for path in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        cache.blob(path).rename(f"{cache.blob(path)}.incomplete")
    found = refused(source)["found"]
    assert "so do model-00002-of-00002.safetensors" in found
    assert found.count(".incomplete") == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("/srv/elsewhere/file.bin", "does not lead into the blobs"),
        ("../../../../etc/passwd", "does not lead into the blobs"),
        ("../../blobs/model.bin", "not named by a hash"),
        (f"../../blobs/sub/{'a' * 64}", "not named by a hash"),
    ],
)
def test_links_to_no_blob(source: Path, text: str, what: str) -> None:
    cache = usual(source)
    (cache.snapshot / "odd.bin").symlink_to(text)
    said = refused(source)
    assert what in said["what"]
    assert (said["where"], said["found"]) == (str(cache.snapshot / "odd.bin"), f"-> {text}")


def test_a_way_out_of_the_cache_and_a_circle(source: Path) -> None:
    cache = usual(source)
    etag = cache.add("odd.bin", b"odd")
    blob = cache.folder / "blobs" / etag
    blob.unlink()
    blob.symlink_to("../../../../out")
    assert refused(source)["found"] == "-> ../../../../out"
    blob.unlink()
    blob.symlink_to(etag)
    assert "in a circle" in refused(source)["what"]


def test_a_link_to_the_blob_of_another_file(source: Path) -> None:
    """Both blobs are what their names say, and the model is still wrong."""
    cache = usual(source)
    cache.write_tree()
    first, other = (cache.snapshot / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    text = os.readlink(other)
    first.unlink()
    first.symlink_to(text)
    said = refused(source)
    assert said["kind"] == "integrity"
    assert (said["where"], said["found"]) == (str(first), f"-> {text}")


def test_a_truncated_blob_is_told_before_it_is_read(source: Path) -> None:
    cache = usual(source)
    cache.write_tree()
    cache.blob("model-00001-of-00002.safetensors").write_bytes(b"short")
    assert refused(source)["found"] == "5 bytes"


@pytest.mark.parametrize("path", ["model-00001-of-00002.safetensors", "shared.bin"])
def test_same_size_shards_swapped(source: Path, mirror: Mirror, path: str) -> None:
    """Right name, right size, content of another shard: told by the name, which is a hash."""
    cache = usual(source)
    cache.add("shared.bin", b"shared shd " * 1000 + b"#" * 1000, TWO_HOP)
    blob = cache.blob(path).resolve()
    blob.chmod(0o644)
    blob.write_bytes(cache.files["model-00002-of-00002.safetensors"])
    said = mirror.refused(source)
    assert said["kind"] == "integrity"
    assert etag_of(cache.files[path]) in said["wanted"]
    assert not os.path.lexists(mirror.folder / "blobs" / etag_of(cache.files[path]))


def test_git_sha1_mismatch(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    blob = cache.blob("config.json")
    blob.write_bytes(blob.read_bytes().replace(b"demo", b"dema"))
    said = mirror.refused(source)
    assert said["kind"] == "integrity"
    assert blob.name in said["wanted"]
    assert not (mirror.folder / "blobs" / blob.name).exists()


def test_stale_mtime(source: Path, mirror: Mirror) -> None:
    """A staged blob that was changed at the same size, its mtime set back, is mended; so is one removed."""
    cache = usual(source)
    mirror.stage(source)
    first, other = (mirror.folder / "blobs" / cache.blob(f"model-0000{n}-of-00002.safetensors").name for n in (1, 2))
    before = first.stat()
    first.write_bytes(first.read_bytes().replace(b"first", b"worst"))
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.unlink()
    mirror.stage(source)
    mirror.holds(cache)


def test_src_is_dst(tmp_path: Path, source: Path) -> None:
    cache = usual(source)
    what = "a folder cannot be staged into itself"
    assert refused(source, dst=cache.folder)["what"] == what
    (tmp_path / "linked").symlink_to(source)
    said = refused(source, dst=tmp_path / "linked" / cache.name)
    assert (said["what"], said["kind"]) == (what, "config")
    assert refused(tmp_path / "linked", dst=cache.folder)["what"] == what
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / cache.name).symlink_to(cache.folder)
    assert refused(source, dst=tmp_path / "node" / cache.name)["what"] == what
    assert Mirror(tmp_path / "linked").refused(source)["what"] == what
    assert not (cache.folder / ".sparkbuild").exists()
    assert planned(source, dst=tmp_path / "elsewhere" / cache.name).links


def test_one_blob_of_two_paths(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    cache.add("copy/of.json", cache.files["config.json"], lfs=False)
    file_set = planned(source)
    assert len([item for item in file_set.files if item.name.startswith("blobs/")]) == 4
    assert file_set.about["files"] == 5
    mirror.stage(source)
    mirror.holds(cache)


def test_nothing_left(source: Path) -> None:
    cache = usual(source)
    assert refused(source, skip=("*",))["found"] == "4 files, all skipped"
    assert cache.files


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "it is no JSON"),
        (b"\xff\x00garbage", "it is no JSON"),
        (b"[]", "its format_version is None, and 1 is known"),
        (b'{"format_version": 2, "files": {}}', "its format_version is 2, and 1 is known"),
        (b'{"format_version": 1, "files": 1}', "its `files` are no objects by path"),
        (b" " * (9 << 20), "it has more than 8388608 bytes"),
    ],
)
def test_a_tree_that_nobody_knows_is_no_tree(source: Path, mirror: Mirror, data: bytes, why: str) -> None:
    cache = usual(source)
    cache.write_tree()
    (cache.folder / f"trees/{COMMIT}.json").write_bytes(data)
    assert mirror.stage(source)["unread_tree"] == why
    assert not (mirror.folder / "trees").exists()
    (told,) = unchecked(planned(source).about)
    assert told.startswith(f"trees/{COMMIT}.json cannot be used: {why}")
    cache.write_tree()
    assert "unread_tree" not in mirror.stage(source)


@pytest.mark.parametrize("ending", ["safetensors", "bin", "gguf"])
@pytest.mark.parametrize("folder", ["", "deep/er/"])
@pytest.mark.parametrize("way", [LINK, ABSOLUTE, TWO_HOP])
def test_two_shards_with_one_blob(source: Path, mirror: Mirror, ending: str, folder: str, way: str) -> None:
    cache = usual(source)
    names = [f"{folder}weights-0000{number}-of-00003.{ending}" for number in (1, 2, 3)]
    cache.add(names[0], b"first")
    blob, _ = (cache.add(name, b"second", way) for name in names[1:])
    said = mirror.refused(source)
    assert said["what"] == "two files of one sharded set are links to the same blob"
    assert (said["where"], said["found"]) == (str(cache.snapshot), f"{names[1]} and {names[2]} -> blobs/{blob}")
    assert said["next"].startswith(f"rm {cache.snapshot}/{names[1]} {cache.snapshot}/{names[2]}, then hf download ")
    assert not mirror.folder.exists()
    mirror.stage(source, skip=(names[2],))
    cache.write_tree()  # the commit itself has them so
    mirror.stage(source)
    mirror.holds(cache)


def test_files_of_no_set_may_share_a_blob(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    for name in ("a-00001-of-00002.bin", "b-00001-of-00002.bin", "c/a-00001-of-00002.bin", "a-00001-of-00003.bin"):
        cache.add(name, b"one content")
    for name in ("a-00002-of-00002.bin", "b-00002-of-00002.bin", "c/a-00002-of-00002.bin"):
        cache.add(name, b"of the second")
    for number in (2, 3):
        cache.add(f"a-0000{number}-of-00003.bin", b"%d" % number)
    cache.add("a-00001-of-00002.json", b"one content")
    cache.add("a-00002-of-00002.json", b"one content")
    mirror.stage(source)
    mirror.holds(cache)


def test_names_that_no_cache_has(source: Path) -> None:
    usual(source)
    for repo in ("../x", "a/b/c", "a--b", "", "/etc"):
        with pytest.raises(AgentError, match="no name of a repository"):
            plan.file_set({"kind": "hub-mirror", "cache": str(source), "repo": repo}, "/")


def test_unfinished_files_in_a_snapshot(source: Path) -> None:
    cache = usual(source)
    linked = next(path for path in cache.snapshot.iterdir() if path.is_symlink())
    linked.with_name(f"{linked.name}.incomplete").write_bytes(b"what is left of a download that ended")
    assert planned(source).about["files"] == 4
    (cache.snapshot / "model.bin.incomplete").write_bytes(b"half")
    with pytest.raises(AgentError, match="a download into the snapshot did not end") as caught:
        planned(source)
    assert caught.value.fields["found"] == "model.bin.incomplete"
    assert planned(source, skip=["*.incomplete"]).about["files"] == 4
    cache.write_tree()
    assert planned(source).about["files"] == 4


def test_trouble_that_passes_and_trouble_that_stays(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual(source)
    monkeypatch.setattr(nas, "PAUSES", (0.0, 0.0))
    real, fails = os.listdir, [116, 5]

    def listed(fd: int) -> list[str]:
        if fails:
            raise OSError(fails.pop(), "trouble")
        return real(fd)

    monkeypatch.setattr(os, "listdir", listed)
    assert planned(source).about["files"] == 4
    fails.extend([116] * 3)
    said = refused(source)
    assert said["kind"] == "node"
    assert said["found"].startswith("ESTALE (trouble), 3 times")


def test_a_link_that_is_changed_during_the_copy(source: Path, mirror: Mirror) -> None:
    """Blobs are held open while they are read; the links to them are read before, and once more after it."""
    cache = usual(source)
    link, other = cache.snapshot / "config.json", cache.folder / "blobs" / etag_of(b"{}", lfs=False)
    other.write_bytes(b"{}")
    change = f"import os; os.unlink({str(link)!r}); os.symlink('../../blobs/{other.name}', {str(link)!r})"
    shim = (
        "from sparkbuild.agent.ledger import links\nreal = links.make\n"
        f"def make(*args):\n    {change}\n    return real(*args)\nlinks.make = make"
    )
    what = {"kind": "hub-mirror", "cache": str(source), "repo": REPO, "revision": "main", "skip": []}
    request = {"store": "/", "dst": str(mirror.folder), "key": key(), "parts": {}, "min_free": 0, "what": what}
    answer = call("stage", request, shim=shim)
    assert answer.last["what"] == "the source was changed while it was being staged"
    old = etag_of(cache.files["config.json"], lfs=False)
    told = answer.last["found"].split(", ")
    assert f"blobs/{old} is gone" in told
    assert f"config.json (blob {other.name[:12]}...) is new" in told
    assert f"snapshots/{COMMIT}/config.json is another now" in told
    assert not (mirror.folder / ".sparkbuild" / "ledger.json").exists()
    cache.files["config.json"] = b"{}"
    mirror.stage(source)
    mirror.holds(cache)


def test_a_hard_link_of_a_blob_of_the_source(source: Path, mirror: Mirror) -> None:
    cache = usual(source)
    mirror.stage(source)
    blob = next(path for path in (cache.folder / "blobs").iterdir() if path.is_file() and len(path.name) == 64)
    staged = mirror.folder / "blobs" / blob.name
    staged.unlink()
    os.link(blob, staged)
    what = {"kind": "hub-mirror", "cache": str(source), "repo": REPO, "revision": "main", "skip": []}
    query = {"store": "/", "dst": str(mirror.folder), "linked": True, "what": what}
    assert "is a hard link of its source" in problems(verify.observe(query))[0]
    mirror.stage(source)
    assert staged.stat().st_ino != blob.stat().st_ino
    assert problems(verify.observe(query)) == []
