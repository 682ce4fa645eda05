"""Packed rows as a file: read by readers that know the format only, at any offset."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sparkbuild.agent.rows.packed import file_set
from sparkbuild.agent.rows.source import HEADER, RowSource
from sparkbuild.agent.source.fileset import FileSet, Wanted
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import CHUNK, cached, drop
from tests.staging.checkpoint import Checkpoint, make
from tests.staging.readers import Packed, Page15, RefusedError, tile

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make(tmp_path_factory.mktemp("checkpoint") / "m", as_hub_cache=True)


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory where there is one: every row is read by itself, past the page cache."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def plan(made: Checkpoint, **more: Any) -> FileSet:
    what = {"kind": "packed", "model": str(made.folder), "layers": [], "split": "even", "tp": 4, "rank": 1}
    return file_set({**what, **more}, "/")


def write(wanted: Wanted, path: Path) -> Path:
    """The file as the engine copies it: chunk by chunk."""
    source = RowSource(wanted.source)
    assert source.size == wanted.size
    buffer = memoryview(bytearray(CHUNK))
    with path.open("wb") as file:
        for start in range(0, source.size, CHUNK):
            with buffer[: min(CHUNK, source.size - start)] as view:
                assert source.read(view, start) == len(view)
                file.write(view)
    source.check()
    source.close()
    return path


def take(source: RowSource, offset: int, length: int) -> bytes:
    buffer = bytearray(b"\xee" * length)
    with memoryview(buffer) as view:
        got = source.read(view, offset)
    assert buffer[got:] == b"\xee" * (length - got)
    return bytes(buffer[:got])


@pytest.mark.parametrize("split", ["even", "heads"])
@pytest.mark.parametrize("tp", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("kind", "reader"), [("packed", Packed), ("page15", Page15)])
def test_every_row_of_every_rank(  # noqa: PLR0917
    made: Checkpoint, fast: Path, kind: str, reader: Any, tp: int, split: str
) -> None:
    seen: dict[int, list[tuple[int, int]]] = {1: [], 14: []}
    for rank in range(tp):
        found = plan(made, kind=kind, split=split, tp=tp, rank=rank)
        for wanted, layer in zip(found.files, (1, 14), strict=True):
            lo, hi = found.about["layers"][str(layer)]
            seen[layer].append((lo, hi))
            table = made.tables[layer]
            path = write(wanted, fast / wanted.name)
            opened = reader(path, layer, lo, hi, table.rows)
            assert all(row == table.row(lo + n) for n, row in enumerate(opened.rows()))
            for row in {lo, lo + 1, (lo + hi) // 2, hi - 2, hi - 1, *random.Random(rank).sample(range(lo, hi), 50)}:
                assert opened.row(row) == table.row(row)
            opened.close()
            path.unlink()
    assert all(tile(ranges, made.tables[layer].rows) for layer, ranges in seen.items())


def test_the_readers_refuse_what_is_not_theirs(made: Checkpoint, tmp_path: Path) -> None:
    lo, hi, rows = 6468, 12937, 25874
    path = write(plan(made).files[0], tmp_path / "a")
    Packed(path, 1, lo, hi, rows).close()
    for wrong in ((14, lo, hi, rows), (1, lo + 1, hi, rows), (1, lo, hi - 1, rows), (1, lo, hi, rows + 1)):
        with pytest.raises(RefusedError):
            Packed(path, *wrong)
    with pytest.raises(RefusedError):
        Page15(path, 1, lo, hi, rows)
    for size in (path.stat().st_size - 1, path.stat().st_size + 4096, 0):
        os.truncate(path, size)
        with pytest.raises(RefusedError):
            Packed(path, 1, lo, hi, rows)


@pytest.mark.parametrize("kind", ["packed", "page15"])
@pytest.mark.parametrize(
    "options", [{"others_first": True, "pad": 5}, {"one_file": True, "prefix": "model.", "pad": 1}]
)
def test_tables_at_odd_offsets(tmp_path: Path, options: dict[str, Any], kind: str) -> None:
    made = make(tmp_path / "m", vocab=50, **options)
    found = plan(made, kind=kind, split="heads", tp=2, rank=1)
    for wanted, (layer, table) in zip(found.files, made.tables.items(), strict=True):
        lo, hi = found.about["layers"][str(layer)]
        path = write(wanted, tmp_path / wanted.name)
        opened = (Packed if kind == "packed" else Page15)(path, layer, lo, hi, table.rows)
        assert list(opened.rows()) == [table.row(row) for row in range(lo, hi)]
        opened.close()


@pytest.fixture(scope="module")
def whole(made: Checkpoint) -> dict[tuple[str, int], tuple[Wanted, bytes]]:
    """Files of all kinds with what should be in them, put together row by row."""
    found = {}
    for kind in ("packed", "page15"):
        planned = plan(made, kind=kind, split="heads", tp=3, rank=1)
        for wanted, layer in zip(planned.files, (1, 14), strict=True):
            lo, hi = planned.about["layers"][str(layer)]
            words = [layer, lo, hi, made.tables[layer].rows, 264, *([15, 4096] if kind == "page15" else [])]
            magic = b"DSV1EN41" if kind == "packed" else b"DS41EPG2"
            data = magic + b"".join(word.to_bytes(8, "little") for word in words)
            data = data.ljust(4096, b"\0")
            rows = [made.tables[layer].row(row) for row in range(lo, hi)]
            step = 1 if kind == "packed" else 15
            pages = [b"".join(rows[n : n + step]) for n in range(0, len(rows), step)]
            data += b"".join(page if kind == "packed" else page.ljust(4096, b"\0") for page in pages)
            found[kind, layer] = wanted, data
    return found


@pytest.mark.parametrize("layer", [1, 14])
@pytest.mark.parametrize("kind", ["packed", "page15"])
def test_any_part_of_it(whole: dict[tuple[str, int], tuple[Wanted, bytes]], kind: str, layer: int) -> None:
    wanted, data = whole[kind, layer]
    assert wanted.size == len(data)
    source = RowSource(wanted.source)
    near = st.sampled_from([0, 1, 263, 264, 265, 4095, 4096, 4097, 4360, 8191, 8192, 8193, 12288])
    offsets = st.one_of(near, st.integers(0, len(data) + 10), near.map(lambda n: len(data) - n))
    lengths = st.one_of(near, st.integers(0, 600), st.integers(0, len(data) + 10))

    @settings(max_examples=60, deadline=None)
    @given(offset=offsets, length=lengths)
    def check(offset: int, length: int) -> None:
        assert take(source, offset, length) == data[offset : offset + length]

    check()
    source.close()


def test_what_is_joined_at_once_is_not_mapped_anew_each_time() -> None:
    """From 128 KiB on malloc takes new pages from the kernel for each result: their faults cost five times the join.

    In a process of its own, as the agent is one: malloc learns from what was freed before.
    """
    code = f"""
import resource, sys
sys.path.append({str(ROOT)!r})
from sparkbuild.agent.rows.source import Interleave
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
weights, scales, into = (memoryview(bytearray(width << 14)) for width in (256, 8, 264))
joined = Interleave(1, 264)
joined.units(into, weights, scales)
before = faults()
joined.units(into, weights, scales)
print(faults() - before)
"""
    argv = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < (264 << 14) // 4096 // 10


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Tables that need several reads, with rows that can be told apart."""
    return make(tmp_path_factory.mktemp("big") / "m", vocab=8000, shards=2)


@pytest.mark.parametrize("kind", ["packed", "page15"])
def test_a_big_one_in_chunks_and_backwards(big: Checkpoint, kind: str) -> None:
    wanted, table = plan(big, kind=kind, tp=2, rank=1).files[1], big.tables[14]
    lo = wanted.source["lo"]
    tracemalloc.start()
    source = RowSource(wanted.source)
    buffer = memoryview(bytearray(CHUNK))
    starts = list(range(0, wanted.size, CHUNK))
    assert len(starts) > 5
    for start in starts + starts[::-1]:
        length = min(CHUNK, wanted.size - start)
        with buffer[:length] as view:
            assert source.read(view, start) == length
        for row in random.Random(start).sample(range(wanted.source["hi"] - lo), 400):
            at = 4096 + (264 * row if kind == "packed" else row // 15 * 4096 + row % 15 * 264) - start
            if 0 <= at <= length - 264:
                assert buffer[at : at + 264] == table.row(lo + row)
    peak = tracemalloc.get_traced_memory()[1] - CHUNK
    tracemalloc.stop()
    assert peak < 8 << 20, peak
    source.close()


def test_nothing_stays_in_the_page_cache(big: Checkpoint) -> None:
    wanted = plan(big, tp=2, rank=0).files[0]
    path = wanted.source["path"]
    drop(path)
    source = RowSource(wanted.source)
    buffer = memoryview(bytearray(CHUNK))
    for start in range(0, wanted.size, CHUNK):
        source.read(buffer, start)
    source.close()
    left = cached(path)
    assert left == 0, f"{left} pages"


def test_a_rank_without_rows(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    wanted = plan(made, split="heads", tp=7, rank=6).files[0]
    path = write(wanted, tmp_path / "a")
    assert path.stat().st_size == HEADER
    rows = made.tables[1].rows
    Packed(path, 1, rows, rows, rows).close()


def refused(source: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        RowSource(source)
    assert caught.value.fields["kind"] == "integrity"
    return caught.value.fields


def test_a_shard_that_is_another_one_by_now(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    wanted = plan(made).files[0]
    path = Path(wanted.source["path"])
    data = path.read_bytes()
    path.write_bytes(data + b"x")
    assert "not the one it was" in refused(wanted.source)["what"]
    path.write_bytes(data.replace(b"embed", b"embaa", 1))
    assert refused(wanted.source)["where"] == str(path)
    os.truncate(path, 100)
    assert "not the one it was" in refused(wanted.source)["what"]


def test_a_source_that_changes_while_it_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    wanted = plan(made).files[0]
    path = Path(wanted.source["path"])
    source = RowSource(wanted.source)
    source.check()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    os.utime(path)
    with pytest.raises(AgentError) as caught:
        source.check()
    assert caught.value.fields["kind"] == "integrity"
    source.close()


def test_a_source_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    source = RowSource(plan(made).files[0].source)
    os.truncate(source.path, 5000)
    with pytest.raises(AgentError) as caught:
        source.read(memoryview(bytearray(source.size)), 0)
    assert caught.value.fields["what"] == "the file with the lookup table ends too soon"
    source.close()


def test_a_link_that_points_elsewhere_by_now(tmp_path: Path) -> None:
    """A revision that is downloaded while another one is staged: the descriptor still shows the old blob."""
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    wanted = plan(made).files[0]
    source = RowSource(wanted.source)
    path = Path(wanted.source["path"])
    other = path.resolve().with_name("f" * 64)
    other.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(f"../../blobs/{other.name}")
    with pytest.raises(AgentError) as caught:
        source.check()
    assert caught.value.fields["found"].endswith("f" * 64)
    source.close()


def test_descriptors_are_closed(made: Checkpoint) -> None:
    before = os.listdir("/proc/self/fd")
    wanted = plan(made).files[0]
    RowSource(wanted.source).close()
    refused({**wanted.source, "header_sha256": "0" * 64})
    assert os.listdir("/proc/self/fd") == before
