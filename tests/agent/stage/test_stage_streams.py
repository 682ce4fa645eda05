"""Several files at once, with bounds on memory and on bytes per second; the first error ends all, nothing is lost."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import CHUNK, MIB, Silent, call, entry, finish, list_of, look_here, sha256, stage_here, start
from tests.agent.stage.test_stage_killed import SLOW, wait_for_chunks

Make = Callable[[str, int], Path]

# What it took at most, told as a log line at the end.
PEAK = """
import resource, threading, sparkbuild.agent.stage.stage as stage
run, threads = stage.run, []
plain = threading.Thread.start
def start(self):
    threads.append(self); plain(self)
threading.Thread.start = start
def told(request, reporter):
    result = run(request, reporter)
    peak = int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]) * 1024
    return {**result, "peak": peak, "threads": len(threads)}
stage.run = told
"""


@pytest.mark.parametrize("streams", [1, 3, 4, 16])
def test_many_files_of_all_sizes(dst: Path, make: Make, streams: int) -> None:
    sizes = [5 * CHUNK + 3, 0, 1, 3 * CHUNK, 200_000, 300_000, CHUNK, 4 * CHUNK, CHUNK + 1, 6 * CHUNK, 2 * CHUNK]
    files = [entry(f"{index}.bin", make(f"{index}.bin", size)) for index, size in enumerate(sizes)]
    answer = call("stage", list_of(dst, files, streams=streams), shim=PEAK)
    assert answer.code == 0, answer.events
    assert (answer.last["bytes"], answer.last["read"]) == (sum(sizes), sum(sizes))
    for item in files:
        assert sha256(dst / item["name"]) == sha256(Path(item["source"]["path"]))
    assert answer.last["peak"] < 64 * MIB
    assert look_here(dst)["problems"] == []


def test_small_files_cost_no_thread_each(dst: Path, make: Make) -> None:
    files = [entry(f"{index}.json", make(f"{index}.json", 100)) for index in range(300)]
    answer = call("stage", list_of(dst, files), shim=PEAK)
    assert answer.last["files"] == 300
    assert answer.last["threads"] <= 5


def test_the_first_error_ends_the_others_and_their_parts_are_kept(dst: Path, make: Make) -> None:
    big = [entry(f"{index}.bin", make(f"{index}.bin", 8 * CHUNK)) for index in range(3)]
    bad = entry("bad.bin", make("bad.bin", CHUNK), sha256="0" * 64)
    request = list_of(dst, [*big, bad])
    answer = call("stage", request, shim=SLOW)
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    parts = sorted(path.name for path in dst.glob(".sparkbuild/*.part"))
    assert len(parts) == 3
    assert not any(name.startswith("bad") for name in parts)
    request["what"]["files"].pop()
    result = stage_here(request)
    assert 0 < result["read"] < 24 * CHUNK
    assert look_here(dst)["problems"] == []


def test_a_killed_staging_of_several_files_goes_on(dst: Path, make: Make) -> None:
    files = [entry(f"{index}.bin", make(f"{index}.bin", 8 * CHUNK)) for index in range(4)]
    process = start("stage", list_of(dst, files), shim=SLOW)
    wait_for_chunks(dst, 2)
    process.kill()
    finish(process)
    begun = sorted((dst / ".sparkbuild").glob("*.chunks"))
    assert begun
    assert all(path.with_suffix(".part").exists() for path in begun)
    lists = [path.read_bytes().partition(b"\n") for path in begun]
    assert all(json.loads(header)["size"] == 8 * CHUNK for header, _, _ in lists)
    assert any(chunks[:8] != bytes(8) for _, _, chunks in lists)
    result = stage_here(list_of(dst, files))
    assert result["read"] < 32 * CHUNK
    assert look_here(dst)["problems"] == []
    assert not list((dst / ".sparkbuild").glob("*.chunks"))


def test_a_bound_on_bytes_per_second(dst: Path, make: Make) -> None:
    files = [entry(f"{index}.bin", make(f"{index}.bin", 2 * MIB)) for index in range(3)]
    start_at = time.monotonic()
    answer = call("stage", list_of(dst, files, bwlimit=4 * MIB))
    took = time.monotonic() - start_at
    assert answer.code == 0
    assert 1.3 < took < 10
    assert len([event for event in answer.events if event["event"] == "progress"]) >= 3


def test_git_sha1(dst: Path, make: Make) -> None:
    source = make("config.json", 5000)
    sha1 = hashlib.sha1(b"blob 5000\0" + source.read_bytes()).hexdigest()
    assert stage_here(list_of(dst, [entry("config.json", source, sha1=sha1)]))["bytes"] == 5000
    big = make("big.bin", 2 * CHUNK)
    wrong = call("stage", list_of(dst, [entry("big.bin", big, sha1="0" * 40)])).last
    assert (wrong["kind"], wrong["wanted"]) == ("integrity", "git sha1 " + "0" * 40)
    assert list(dst.glob(".sparkbuild/*.part")) == []
    assert not (dst / "big.bin").exists()


def test_a_text_is_a_source(dst: Path) -> None:
    text = '{"weight_map": {}}\n'
    item: dict[str, Any] = {"name": "index.json", "source": {"kind": "text", "text": text, "id": "index"}}
    assert stage_here(list_of(dst, [item]))["bytes"] == len(text)
    assert (dst / "index.json").read_text() == text


def test_unknown_kinds(dst: Path) -> None:
    for what in ({"kind": "tape"}, {}, None):
        error = call("stage", {"dst": str(dst), "key": "a" * 64, "parts": {}, "what": what}).last
        assert (error["kind"], error["what"]) == ("config", "a staging of an unknown kind")
    files = [{"name": "x", "source": {"kind": "tape", "path": "/x"}, "size": 5}]
    assert call("stage", list_of(dst, files)).last["what"] == "a source of an unknown kind"
    assert Silent().said == []
