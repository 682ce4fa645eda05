"""A source is whole, or it is refused and what is missing is named."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub._local_folder import _short_hash, get_local_download_paths, write_download_metadata

from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.plan import of_what
from sparkbuild.agent.source.shardindex import ShardIndex
from sparkbuild.agent.wire.protocol import AgentError
from sparkbuild.staging import words
from tests.agent.driver import CHUNK, call, entry, flip, key, list_of, look_here, problems
from tests.staging.hubcache import REAL, REPO, HubCache, etag_of

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 99\n" % (b"ab" * 32)


def weights(data: bytes = b"w" * 4000) -> bytes:
    """A safetensors file with one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def gguf(order: str = "<", kind: int = 8) -> bytes:
    """A GGUF file with some keys, and two tensors: 64 elements of Q8_0, and 3 of a type that nobody knows."""

    def text(name: bytes) -> bytes:
        return struct.pack(f"{order}Q", len(name)) + name

    def number(value: int, form: str = "I") -> bytes:
        return struct.pack(order + form, value)

    keys = text(b"general.alignment") + number(4) + number(64)
    keys += text(b"tokens") + number(9) + number(8) + number(2, "Q") + text(b"a") + text(b"bc")
    keys += text(b"scores") + number(9) + number(6) + number(2, "Q") + bytes(8)
    keys += text(b"name") + number(kind) + text(b"x")
    tensors = text(b"w") + number(2) + number(32, "Q") + number(2, "Q") + number(8) + number(0, "Q")
    tensors += text(b"v") + number(1) + number(3, "Q") + number(77) + number(64, "Q")
    header = b"GGUF" + number(3) + number(2, "Q") + number(4, "Q") + keys + tensors
    return header + bytes(-len(header) % 64) + b"w" * 68


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def request(path: Path, dst: Path | str = "/nowhere", **more: Any) -> dict[str, Any]:
    what = {"kind": "folder", "path": str(path), "members": [], "skip": [], **more}
    return {"what": what, "dst": str(dst), "store": "/", "key": key(), "parts": {}}


def planned(path: Path, **more: Any) -> FileSet:
    return of_what(request(path, **more)["what"], "/", "/nowhere", Archives())


def refused(path: Path, **more: Any) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        planned(path, **more)
    assert caught.value.fields["kind"] == "integrity"
    assert caught.value.fields["next"]
    return caught.value.fields


ONE, TWO, THREE = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
CASES: dict[str, tuple[dict[str, bytes], str]] = {
    "a shard, no index": ({ONE: weights(), THREE: weights(b"x")}, TWO),
    "a shard of the index": (
        {"a.safetensors": weights(), "model.safetensors.index.json": b'{"weight_map": {"t": "b.safetensors"}}'},
        "b.safetensors",
    ),
    "a shard of bins": ({"pytorch_model-00001-of-00002.bin": b"x"}, "pytorch_model-00002-of-00002.bin"),
    "a split of gguf": ({f"q4/m-0000{n}-of-00003.gguf": b"GGUF%d" % n for n in (1, 3)}, "q4/m-00002-of-00003.gguf"),
    "all but the pointer": ({"model.safetensors": POINTER}, "git-lfs"),
    "a pointer of a tokenizer": ({"tokenizer.json": POINTER}, "git-lfs"),
    "empty": ({"model.safetensors": b""}, "empty"),
    "an empty gguf": ({"m.gguf": b""}, "empty"),
    "a truncated gguf": ({"m.gguf": gguf()[:-1]}, "truncated"),
    "a truncated gguf of the other order": ({"m.gguf": gguf(">")[:-1]}, "truncated"),
    "a gguf cut in its header": ({"m.gguf": gguf()[:60]}, "within its header"),
    "a gguf of zeros": ({"m.gguf": bytes(5000)}, "begins with zeros"),
    "a gguf with a value of no type": ({"m.gguf": gguf(kind=99)}, "unknown type"),
    "truncated": ({"model.safetensors": weights()[:-1]}, "truncated"),
    "cut in its header": ({"model.safetensors": weights()[:20]}, "within its header"),
    "zeros": ({"model.safetensors": bytes(5000)}, "impossible length"),
    "an index that was cut off": ({"model.safetensors.index.json": b'{"weight_map": {"t": "b.safeten'}, "cut off"),
    "an index that is a list": ({"model.safetensors.index.json": b"[]"}, "a list stands where"),
    "an index that is a word": ({"model.safetensors.index.json": b"null"}, "null stands where"),
    "an index that is no JSON": ({"model.safetensors.index.json": b'{"weight_map" "x"}'}, "it is no JSON"),
    "an index with half a word": ({"model.safetensors.index.json": b'{"weight_map": {}, "a": tru}'}, "no JSON: tru"),
    "an index without a map": ({"model.safetensors.index.json": b'{"metadata": {"weight_map": {}}}'}, "no weight_map"),
    "an index whose map is a list": ({"pytorch_model.bin.index.json": b'{"weight_map": ["a.bin"]}'}, "is a list"),
    "an index that names a number": ({"model.safetensors.index.json": b'{"weight_map": {"t": 5}}'}, "has 5 for"),
    "an index that names a list": ({"model.safetensors.index.json": b'{"weight_map": {"t": []}}'}, "has a list"),
    "an index that leaves": (
        {"model.safetensors.index.json": b'{"weight_map": {"a": "../../etc/passwd", "t": "config.json"}}'},
        '"../../etc/passwd"',
    ),
    "an index that names nothing": ({"model.safetensors.index.json": b'{"weight_map": {"t": ""}}'}, 'names ""'),
    "two indexes in one": ({"model.safetensors.index.json": b'{"weight_map": {}}{"weight_map": {}}'}, "nothing more"),
}
BEGUN = {
    "a download beside": ({"model.bin": b"old", "model.bin.incomplete": b"ne"}, "model.bin.incomplete"),
    "a download of aria2": ({"model.bin": bytes(500), "model.bin.aria2": b"\0\1"}, "model.bin.aria2"),
    "a download of a browser": ({"q4/m.bin": b"", "q4/m.bin.crdownload": b"half"}, "m.bin.crdownload"),
    "a part": ({"m.bin": b"", "m.bin.part": b"half"}, "m.bin.part"),
    "what rsync writes": ({"m.bin": b"old", ".m.bin.Ab12Cd": b"ne"}, ".m.bin.Ab12Cd"),
    "a download alone": ({"model.gguf.incomplete": b"GGUF ne"}, "model.gguf.incomplete"),
}
CASES |= BEGUN


@pytest.mark.parametrize("data", [gguf(), gguf(">"), gguf() + b"more", b"<html>"])
def test_a_gguf_that_is_whole_or_none(tmp_path: Path, data: bytes) -> None:
    assert [file.name for file in planned(folder_of(tmp_path / "m", {"m.gguf": data})).files] == ["m.gguf"]


def test_a_real_gguf(tmp_path: Path, model_file: Path) -> None:
    """Of an engine's own: all of it is a whole file, and one byte less is not."""
    folder = tmp_path / "m"
    folder.mkdir()
    with model_file.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        (folder / "m.gguf").write_bytes(file.read())
    assert planned(folder).files
    os.truncate(folder / "m.gguf", size - 64)
    assert "truncated" in refused(folder)["what"]


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_is_not_whole(tmp_path: Path, name: str) -> None:
    files, missing = CASES[name]
    top = folder_of(tmp_path / "m", {"config.json": b"{}", **files})
    said = refused(top)
    assert missing in said["what"] + said["found"]
    dst = tmp_path / "dst"
    answer = call("stage", request(top, dst))
    assert (answer.code, answer.last["what"]) == (1, said["what"])
    assert not dst.exists()


@pytest.mark.parametrize("name", CASES)
def test_a_hub_cache_of_real_files_that_is_not_whole(tmp_path: Path, name: str) -> None:
    files, missing = CASES[name]
    cache = HubCache(tmp_path / "hub")
    for path, data in {"config.json": b"{}", **files}.items():
        cache.add(path, data, REAL)
    cache.ref()
    what = {"kind": "hub-mirror", "cache": str(cache.root), "repo": REPO, "revision": "main", "skip": []}
    with pytest.raises(AgentError) as caught:
        of_what(what, "/", "", Archives())
    assert missing in caught.value.fields["what"] + caught.value.fields["found"]


@pytest.mark.parametrize("name", BEGUN)
def test_what_is_left_of_a_download_that_ended_may_be_skipped(tmp_path: Path, name: str) -> None:
    files, left = BEGUN[name]
    top = folder_of(tmp_path / "m", {"config.json": b"{}", **files})
    wanted = next((path for path in files if not path.endswith(left)), "config.json")
    assert left in refused(top, members=[wanted, "*.json"] if len(files) > 1 else ["**"])["found"]
    rest = planned(top, skip=["*" + left.partition(" ")[0]])
    assert {file.name for file in rest.files} == {"config.json", wanted}


def test_names_that_are_no_downloads(tmp_path: Path) -> None:
    files = {".gitignore": b"*", "weights.part": b"x", "m.gguf.part1of2": b"x", ".partial": b"x", "a.download": b"x"}
    assert {file.name for file in planned(folder_of(tmp_path / "m", files)).files} == set(files)


def test_an_index_is_read_in_blocks_of_any_size() -> None:
    text = json.dumps({"metadata": {"n": [1, -2.5e3, True, {"weight_map": 1}]}, "weight_map": {'a\\"': "x", "b": "y"}})
    for indent in (text, json.dumps(json.loads(text), indent=2)):
        data = indent.encode()
        for size in (1, 2, 3, 7, len(data)):
            index = ShardIndex()
            for at in range(0, len(data), size):
                index.feed(data[at : at + size])
            assert (index.end(), index.problem, index.names) == (True, "", {b'"x"', b'"y"'})
            short = ShardIndex()
            short.feed(data[:-1])
            assert not short.end()


def test_what_is_left_of_an_older_download_is_not_called_missing(tmp_path: Path) -> None:
    left = f".cache/huggingface/download/config.json.{'ab' * 32}.incomplete"
    top = folder_of(tmp_path / "m", {"x": b"1", left: b"{"})
    assert refused(top)["found"] == f"downloads that did not end: config.json.{'ab' * 32}.incomplete"


def test_what_is_skipped_may_be_missing(tmp_path: Path) -> None:
    top = folder_of(tmp_path / "m", {ONE: weights(), TWO: weights(b"x")})
    assert THREE in refused(top)["found"]
    file_set = planned(top, skip=[THREE])
    assert [file.name for file in file_set.files] == [ONE, TWO]
    assert "unused_skip" not in file_set.about
    assert len(planned(top, members=[ONE]).files) == 1


def test_config_and_tokenizer_beside_an_unfinished_download(tmp_path: Path) -> None:
    cache = HubCache(tmp_path / "hub")
    cache.add("config.json", b"{}", lfs=False)
    cache.ref()
    part = cache.folder / f"blobs/{'ab' * 32}.1a2b3c4d.incomplete"
    part.write_bytes(b"half")
    what = {"kind": "hub-mirror", "cache": str(cache.root), "repo": REPO, "revision": "main", "skip": []}
    with pytest.raises(AgentError) as caught:
        of_what(what, "/", "", Archives())
    assert part.name in caught.value.fields["found"]
    (cache.folder / f"blobs/{'ab' * 32}").write_bytes(b"another process ended it")
    assert len(of_what(what, "/", "", Archives()).files) == 2


class LocalDir:
    """A folder as `hf download --local-dir` leaves it, made by huggingface_hub itself."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir(parents=True)

    def add(self, name: str, data: bytes, *, lfs: bool = True) -> Path:
        paths = get_local_download_paths(self.top, name)
        paths.file_path.write_bytes(data)
        write_download_metadata(self.top, name, "c" * 40, etag_of(data, lfs=lfs))
        return paths.file_path

    def unfinished(self, name: str, etag: str) -> Path:
        paths = get_local_download_paths(self.top, name)
        part = paths.incomplete_path(etag)
        part = part.with_name(f"{part.stem}.0badf00d.incomplete")
        part.write_bytes(b"half")
        paths.lock_path.touch()
        return part


def test_a_local_dir_of_hugging_face(tmp_path: Path) -> None:
    made = LocalDir(tmp_path / "m")
    shard, config = made.add("sub/model.safetensors", weights()), made.add("config.json", b"{}", lfs=False)
    (made.top / ".git").mkdir()
    (made.top / ".git/HEAD").write_text("ref: refs/heads/main\n")
    file_set = planned(made.top)
    by_name = {file.name: file for file in file_set.files}
    assert sorted(by_name) == ["config.json", "sub/model.safetensors"]
    assert by_name["sub/model.safetensors"].sha256 == hashlib.sha256(weights()).hexdigest()
    assert by_name["config.json"].sha1 == etag_of(b"{}", lfs=False)
    assert file_set.about["left_out"][".git"] == 1
    assert file_set.about["left_out"][".cache/huggingface"] >= 4
    assert any(".cache/huggingface" in line for line in words.lines(file_set.about))
    # weights that broke are refused when they are read; a config that somebody edited is what it is now
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    answer = call("stage", request(made.top, tmp_path / "dst"))
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    assert str(shard) in answer.last["where"]
    shard.write_bytes(weights())
    config.write_bytes(b'{"edited": true}')
    os.utime(config, (time.time() + 60, time.time() + 60))
    assert call("stage", request(made.top, tmp_path / "dst")).code == 0


def test_a_local_dir_whose_download_did_not_end(tmp_path: Path) -> None:
    made = LocalDir(tmp_path / "m")
    made.add("config.json", b"{}", lfs=False)
    made.unfinished("sub/model.safetensors", "ab" * 32)
    said = refused(made.top)
    assert "sub/model.safetensors" in said["found"]
    assert "did not end: sub/model.safetensors" in said["found"]
    assert len(planned(made.top, skip=["sub/"]).files) == 1
    # what another run downloaded later is there
    made.add("sub/model.safetensors", weights())
    made.unfinished("sub/model.safetensors", hashlib.sha256(weights()).hexdigest())
    next((made.top / ".cache/huggingface/download/sub").glob(f"*{'ab' * 32}*.incomplete")).unlink()
    assert len(planned(made.top).files) == 2


def test_a_local_dir_that_lacks_a_file(tmp_path: Path) -> None:
    made = LocalDir(tmp_path / "m")
    made.add("config.json", b"{}", lfs=False)
    made.add("model.safetensors", weights()).unlink()
    assert "1 file missing: model.safetensors" in refused(made.top)["found"]


def test_the_name_of_a_part_is_that_of_hugging_face() -> None:
    name = "model.safetensors.metadata"
    assert _short_hash(name) == base64.urlsafe_b64encode(hashlib.sha1(name.encode()).digest()).decode()


@pytest.mark.parametrize("how", ["draft", "no ledger", "locked", "a folder in it"])
def test_a_source_that_is_half_staged(tmp_path: Path, how: str) -> None:
    first = folder_of(tmp_path / "nas", {"a.pt": b"a", "sub/b.pt": b"b"})
    staged = tmp_path / "staged"
    assert call("stage", request(first, staged)).code == 0
    assert call("stage", request(staged, tmp_path / "second")).code == 0
    ours = staged / ".sparkbuild"
    top = staged
    with (ours / "lock").open("rb") as lock:
        if how == "locked":
            fcntl.flock(lock, fcntl.LOCK_EX)
        else:
            (ours / "ledger.json").unlink()
        if how != "no ledger":
            (ours / "draft.jsonl").write_text("")
        if how == "a folder in it":
            top = staged / "sub"
        said = refused(top)
    assert said["what"] == "the source is a staged folder that is not whole"
    assert said["where"] == str(staged)
    assert {"draft": "draft.jsonl", "no ledger": "no ledger", "locked": "pid "}.get(how, "draft") in said["found"]


def test_a_folder_of_a_workspace_is_no_staged_one(tmp_path: Path) -> None:
    (tmp_path / "ws/.sparkbuild/runs").mkdir(parents=True)
    (tmp_path / "ws/.sparkbuild/state.db").write_bytes(b"x")
    assert len(planned(folder_of(tmp_path / "ws/models/m", {"a.pt": b"a"})).files) == 1


def test_links_mean_what_the_kernel_takes_them_for(tmp_path: Path) -> None:
    """`..` behind a linked folder is the folder above of where that leads."""
    top = folder_of(tmp_path / "nas/model", {"t.bin": b"wrong", "real/deep/x": b"", "real/t.bin": b"right"})
    (top / "dl").symlink_to("real/deep")
    (top / "link.bin").symlink_to("dl/../t.bin")
    dst = tmp_path / "dst"
    assert call("stage", request(top, dst, skip=["dl"])).code == 0
    assert (dst / "link.bin").read_bytes() == (top / "link.bin").read_bytes() == b"right"


def test_links_of_a_snapshot_mean_what_the_kernel_takes_them_for(tmp_path: Path) -> None:
    """A snapshot that was moved to another disk, with a link in its place: its links lead elsewhere now."""
    cache = HubCache(tmp_path / "hub")
    cache.add("model.pt", b"weights" * 99)
    cache.ref()
    moved = tmp_path / "disk2/one/two" / cache.commit
    moved.parent.mkdir(parents=True)
    os.rename(cache.snapshot, moved)
    cache.snapshot.symlink_to(moved)
    what = {"kind": "hub-mirror", "cache": str(cache.root), "repo": REPO, "revision": "main", "skip": []}
    with pytest.raises(AgentError, match="does not lead into the blobs"):
        of_what(what, "/", "", Archives())


def test_mending_keeps_what_is_right(tmp_path: Path) -> None:
    """One chunk is bad here, and the same one at the source."""
    source, dst = tmp_path / "nas.pt", tmp_path / "srv/staged"
    source.write_bytes(os.urandom(6 * CHUNK))
    right = source.read_bytes()
    wanted = list_of(dst, [entry("a.pt", source, sha256=hashlib.sha256(right).hexdigest())])
    assert call("stage", wanted).code == 0
    for path in (source, dst / "a.pt"):
        flip(path, 2 * CHUNK + 9)
    for _ in range(2):
        said = call("stage", wanted).last
        assert said["what"] == "a.pt cannot be mended: its source is not what it was staged from", said
        assert "chunk 3 of 6" in said["found"]
        assert sum(a != b for a, b in zip((dst / "a.pt").read_bytes(), right, strict=True)) == 1, "as it was before"
    source.write_bytes(right)
    mended = call("stage", wanted).last
    assert mended["read"] <= CHUNK
    assert (dst / "a.pt").read_bytes() == right
    assert problems(look_here(dst, full=True)) == []
