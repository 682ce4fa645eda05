"""Headers of safetensors files: what the library reads is read the same, what no reader would take is refused."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import given, settings, strategies as st

from sparkbuild.agent.source.safetensors import LIMIT, Header, Tensor, read
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire.protocol import AgentError
from tests.staging.checkpoint import make as checkpoint, shard


def header(path: Path) -> Header:
    source = FileSource(str(path))
    try:
        return read(source)
    finally:
        source.close()


def refused(path: Path) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        header(path)
    fields = caught.value.fields
    assert fields["kind"] == "integrity"
    assert fields["where"] == str(path)
    assert fields["what"].startswith("not a whole safetensors file: ")
    assert fields["next"]
    return fields


def write(path: Path, entries: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], first: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


@pytest.mark.parametrize("others_first", [False, True])
def test_it_reads_what_the_library_reads(tmp_path: Path, others_first: bool) -> None:
    made = checkpoint(tmp_path / "m", vocab=20, others_first=others_first, pad=3)
    for path in made.folder.glob("*.safetensors"):
        data, found = path.read_bytes(), header(path)
        theirs = dict(safetensors.deserialize(data))
        assert found.tensors.keys() == theirs.keys()
        for name, tensor in found.tensors.items():
            assert data[tensor.start : tensor.end] == bytes(theirs[name]["data"])
            assert (tensor.dtype, list(tensor.shape)) == (theirs[name]["dtype"], theirs[name]["shape"])
        assert found.length == 8 + int.from_bytes(data[:8], "little")
        assert found.sha256 == hashlib.sha256(data[: found.length]).hexdigest()


def test_a_file_of_the_library(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="no numpy: nothing here that the library could write")
    write_file = importlib.import_module("safetensors.numpy").save_file
    path = tmp_path / "a.safetensors"
    tensors = {"a": numpy.arange(6, dtype="int32").reshape(2, 3), "b": numpy.zeros((0, 4)), "c": numpy.array(1.5)}
    write_file(tensors, path, {"format": "np"})
    found = header(path).tensors
    assert {name: (one.dtype, one.shape, one.end - one.start) for name, one in found.items()} == {
        "a": ("I32", (2, 3), 24),
        "b": ("F64", (0, 4), 0),
        "c": ("F64", (), 8),
    }


def test_only_the_header_is_read(tmp_path: Path) -> None:
    size = 100 << 30
    path = write(tmp_path / "big.safetensors", {"x": entry("U8", [size], 0, size)})
    base = path.stat().st_size
    os.truncate(path, base + size)
    began = time.monotonic()
    assert header(path).tensors["x"] == Tensor("U8", (size,), base, base + size)
    assert time.monotonic() - began < 10


def test_a_dtype_of_tomorrow(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {"x": entry("F8_NEXT", [3], 0, 7), "y": entry("F4", [4], 7, 9)}, bytes(9))
    assert header(path).tensors["x"].dtype == "F8_NEXT"


def test_a_truncated_file_and_one_with_a_tail(tmp_path: Path) -> None:
    path = tmp_path / "a"
    shard(path, [("x", "U8", [100], bytes(100))])
    size = path.stat().st_size
    for length, what in ((size - 1, "outside of it"), (size + 1, "something behind"), (60, "within its header")):
        os.truncate(path, length)
        assert what in refused(path)["what"]
    fields = refused(write(path, {"x": entry("U8", [100], 0, 100)}, bytes(99)))
    assert "'x'" in fields["what"]
    for length in (0, 7, 8):
        path.write_bytes(b"\x10" + bytes(length - 1) if length else b"")
        assert "within its header" in refused(path)["what"]


BAD: dict[str, tuple[Any, bytes, str]] = {
    "a list": ([], b"", "no JSON object"),
    "spaces first": (b'  {"x":1}', b"", "no JSON object"),
    "no JSON": (b'{"x":', b"", "no JSON object"),
    "no UTF-8": (b'{"\xff":1}', b"", "no JSON object"),
    "deep": (b'{"x":' + b"[" * 100_000, b"", "no JSON object"),
    "a key twice": (
        b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"1",
        "no JSON object",
    ),
    "an inner key twice": (b'{"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"1", "no JSON"),
    "no tensor": ({"x": 1}, b"", "'x' is no tensor"),
    "no dtype": ({"x": {"shape": [1], "data_offsets": [0, 1]}}, b"1", "'x' is no tensor"),
    "three offsets": ({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, b"1", "'x' is no tensor"),
    "a negative shape": ({"x": entry("U8", [-1], 0, 1)}, b"1", "'x' is no tensor"),
    "a true shape": ({"x": entry("U8", [True], 0, 1)}, b"1", "'x' is no tensor"),
    "a fraction": ({"x": {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]}}, b"1", "'x' is no tensor"),
    "a huge number": ({"x": entry("U8", [10**30], 0, 1)}, b"1", "'x' is no tensor"),
    "backwards": ({"x": entry("U8", [1], 1, 0)}, b"1", "'x' ends before it begins"),
    "past the end": ({"x": entry("U8", [2], 0, 2)}, b"1", "'x' is outside"),
    "another size": ({"x": entry("BF16", [3], 0, 5)}, b"12345", "another size"),
    "half a byte": ({"x": entry("F4", [3], 0, 1)}, b"1", "another size"),
    "a hole in front": ({"x": entry("U8", [1], 1, 2)}, b"12", "a hole"),
    "a hole": ({"x": entry("U8", [1], 0, 1), "y": entry("U8", [1], 2, 3)}, b"123", "a hole"),
    "an overlap": ({"x": entry("U8", [2], 0, 2), "y": entry("U8", [2], 1, 3)}, b"123", "overlap"),
    "a tail": ({"x": entry("U8", [1], 0, 1)}, b"12", "behind its last"),
    "nothing but a tail": ({}, b"12", "behind its last"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_no_reader_would_take(tmp_path: Path, case: str) -> None:
    entries, data, what = BAD[case]
    assert what in refused(write(tmp_path / "a.safetensors", entries, data))["what"]


def test_sizes_are_told_in_whole_numbers(tmp_path: Path) -> None:
    said = refused(write(tmp_path / "a", {"x": entry("F8_E4M3", [5171, 256], 0, 1)}, b"1"))
    assert (said["found"], said["wanted"]) == ("1 bytes", "1323776 bytes for F8_E4M3 [5171, 256]")
    said = refused(write(tmp_path / "b", {"x": entry("F4", [3], 0, 1)}, b"1"))
    assert said["wanted"] == "12 bits for F4 [3]"
    said = refused(write(tmp_path / "c", {"x": entry("U8", [2], 5, 3)}, b"12345"))
    assert said["found"] == "data_offsets [5, 3]"


def test_a_huge_header_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"{}", length=LIMIT + 1)
    os.truncate(path, 1 << 40)
    fields = refused(path)
    assert fields["found"] == f"{LIMIT + 1} bytes"
    path = write(tmp_path / "b", b"{}", length=LIMIT)
    assert "within its header" in refused(path)["what"]
    path = write(tmp_path / "c", b"{}", length=(1 << 64) - 1)
    assert "impossible length" in refused(path)["what"]


@settings(max_examples=150, deadline=None)
@given(where=st.integers(0, 200), value=st.integers(0, 255))
def test_one_wrong_byte_is_an_error_or_another_header(
    tmp_path_factory: pytest.TempPathFactory, where: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("a") / "a"
    shard(path, [("x", "U8", [10], bytes(10)), ("y", "F8_E4M3", [2, 3], bytes(6))])
    before, data = header(path), bytearray(path.read_bytes())
    where %= before.length
    data[where] = value
    path.write_bytes(data)
    try:
        found = header(path)
    except AgentError:
        return
    assert (found.sha256 == before.sha256) == (found == before)
    assert all(before.length <= one.start <= one.end <= len(data) for one in found.tensors.values())


def test_the_error_is_of_the_open_file(tmp_path: Path, make: Callable[[str, int], Path]) -> None:
    """A path on a NAS is asked for nothing: what was opened is what counts."""
    path = tmp_path / "a"
    shard(path, [("x", "U8", [10], bytes(10))])
    source = FileSource(str(path))
    make("b", 3).rename(path)
    assert list(read(source).tensors) == ["x"]
    source.close()
