"""Model files of others: hub caches, the headers of safetensors files, indexes of shards."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.hub import plan, repository
from sparkbuild.agent.hub.links import Place
from sparkbuild.agent.rows import tables
from sparkbuild.agent.source import gguf as gguf_files, safetensors
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.source.test_whole import gguf
from tests.parsers.near import bounded, changed, damaged, json_like
from tests.staging.hubcache import COMMIT

TREE = {
    "format_version": 1,
    "files": {"a.bin": {"size": 5, "blob_id": "a" * 40, "lfs_sha256": "b" * 64}, "c.json": {"size": 2}},
}
HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F8_E4M3", "shape": [4, 2], "data_offsets": [0, 8]},
    "b": {"dtype": "BF16", "shape": [2], "data_offsets": [8, 12]},
}
INDEX = {
    "metadata": {"total_size": 12},
    "weight_map": {"layers.1.engram.embed.weight": "model-00001-of-00002.safetensors", "b": "x.safetensors"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name in ("trees", "refs", f"snapshots/{COMMIT}", "blobs"):
        (made / "hub/models--x--y" / name).mkdir(parents=True)
    return made


@given(data=json_like(TREE))
def test_the_tree_of_a_commit(folder: Path, data: bytes) -> None:
    place = Place(str(folder / "hub"), "models--x--y")
    (folder / f"hub/models--x--y/trees/{COMMIT}.json").write_bytes(data)
    with bounded(AgentError):
        found, problem = repository.tree(place, COMMIT)
        assert found or problem
        for path in found.files if found else ():
            found.blob(path)
            found.size(path)


@given(data=damaged(COMMIT.encode() + b"\n"))
def test_a_ref(folder: Path, data: bytes) -> None:
    (folder / "hub/models--x--y/refs/main").write_bytes(data)
    with bounded(AgentError):
        repository.resolve(Place(str(folder / "hub"), "models--x--y"), "x/y", "main")


@given(data=json_like(TREE), ref=damaged(COMMIT.encode()), blob=st.binary(max_size=8))
def test_a_hub_cache_as_a_whole(folder: Path, data: bytes, ref: bytes, blob: bytes) -> None:
    top = folder / "hub/models--x--y"
    (top / f"trees/{COMMIT}.json").write_bytes(data)
    (top / "refs/main").write_bytes(ref)
    (top / f"blobs/{'b' * 64}").write_bytes(blob)
    link = top / f"snapshots/{COMMIT}/a.bin"
    if not link.is_symlink():
        link.symlink_to(f"../../blobs/{'b' * 64}")
    what = {
        "kind": "hub", "cache": str(folder / "hub"), "repo": "x/y", "revision": "main", "members": ["*"], "skip": [],
    }  # fmt: skip
    with bounded(AgentError):
        plan.file_set(what, str(folder))


@given(header=changed(HEADER), size=st.one_of(st.none(), st.integers(0, 2**64 - 1)), tail=st.sampled_from([12, 0, 13]))
def test_a_safetensors_header(folder: Path, header: object, size: int | None, tail: int) -> None:
    text = json.dumps(header).encode()
    _read(folder, (len(text) if size is None else size).to_bytes(8, "little") + text + bytes(tail))


@given(data=json_like(HEADER).flatmap(lambda text: damaged(len(text).to_bytes(8, "little") + text + bytes(12))))
def test_a_safetensors_file(folder: Path, data: bytes) -> None:
    _read(folder, data)


def _read(folder: Path, data: bytes) -> None:
    path = folder / "a.safetensors"
    path.write_bytes(data)
    with bounded(AgentError):
        source = FileSource(str(path))
        try:
            safetensors.read(source)
        finally:
            source.close()


@given(data=damaged(gguf()) | damaged(gguf(">")))
def test_a_gguf_file(folder: Path, data: bytes) -> None:
    _gguf(folder, data)


@pytest.mark.parametrize("size", [10**5, 10**9])
@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IQQ", 3, 2**40, 0),
        struct.pack("<IQQ", 3, 0, 2**40),
        struct.pack("<IQQQ", 3, 1, 0, 2**39),
        struct.pack("<IQQQIIQ", 3, 0, 1, 0, 9, 8, 2**40),
        struct.pack("<IQQQI", 3, 0, 1, 0, 9) + struct.pack("<IQ", 9, 1) * 5000,
        struct.pack("<IQQQI", 3, 1, 0, 0, 2**32 - 1),
    ],
)
def test_a_gguf_file_that_promises_too_much(folder: Path, header: bytes, size: int) -> None:
    _gguf(folder, b"GGUF" + header, size)


def _gguf(folder: Path, data: bytes, size: int = 0) -> None:
    path = folder / "a.gguf"
    path.write_bytes(data)
    if size:
        os.truncate(path, size)
    with bounded(AgentError):
        source = FileSource(str(path))
        try:
            gguf_files.refuse_cut_off(source)
        finally:
            source.close()


@given(data=json_like(INDEX))
def test_an_index_of_shards(folder: Path, data: bytes) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_bytes(data)
    with bounded(AgentError):
        tables._weight_map(str(path))
