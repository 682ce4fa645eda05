"""A blob of a mirror is named by its paths in the snapshot, wherever a single file is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbuild.agent.ledger.ledger import Link
from sparkbuild.agent.ledger.titles import Titles
from tests.agent.driver import call, flip, key, look_here, problems
from tests.agent.exports import Site

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def called(blob: Path, *paths: str) -> str:
    return f"{', '.join(paths)} (blob {blob.name[:12]}...)"


def test_by_links() -> None:
    top = "snapshots/0123"
    links = [
        Link(f"{top}/a.bin", "../../blobs/aaaaaaaaaaaabbbb"),
        Link(f"{top}/sub/b.bin", "../../../blobs/cccccccccccccccc"),
        Link(f"{top}/b.bin", "../../blobs/cccccccccccccccc"),
        *(Link(f"{top}/{n}.txt", "../../blobs/dddd") for n in range(5)),
        Link("latest.bin", "real.bin"),
    ]
    titles = Titles([*links, *links])
    assert titles.of("blobs/aaaaaaaaaaaabbbb") == "a.bin (blob aaaaaaaaaaaa...)"
    assert titles.of("blobs/cccccccccccccccc") == "b.bin, sub/b.bin (blob cccccccccccc...)"
    assert titles.of("blobs/dddd") == "0.txt, 1.txt and 3 more (blob dddd...)"
    assert titles.of("real.bin") == "latest.bin (real.bin)"
    assert titles.of("blobs/eeee") == "blobs/eeee"
    assert Titles([]).of("model.gguf") == "model.gguf"


def test_a_look_and_a_scrub_say_the_same(site: Site) -> None:
    site.nas.add("copy.safetensors", site.nas.files[SHARD])
    site.mirrored()
    shard, config = site.blob(SHARD), site.blob("config.json")
    flip(shard, 1)
    config.unlink()
    looked = look_here(site.mirror, key=key("b"), linked=True)
    size = len(site.nas.files[SHARD])
    assert sorted(problems(looked)) == [
        f"{called(config, 'config.json')} is missing",
        f"{called(shard, 'copy.safetensors', SHARD)} differs from its ledger ({size} bytes, one chunk)",
    ]
    request = {"store": str(site.store), "folders": [{"dst": str(site.mirror), "key": key("b")}], "limit": 0}
    (scrubbed,) = call("scrub", request).last["folders"]
    assert sorted(problems(scrubbed)) == sorted(problems(looked))


def test_what_staging_logs_and_fails_of(site: Site) -> None:
    site.mirrored()
    flip(site.blob(SHARD), 1)
    blob, mirror = site.nas.blob(SHARD), site.blob(SHARD)
    what = {"kind": "hub-mirror", "cache": str(site.nas.root), "repo": site.nas.repo, "revision": "main", "skip": []}
    request = {"dst": str(site.mirror), "key": key("b"), "parts": {}, "what": what, "linked": True}
    size = len(site.nas.files[SHARD])
    blob.write_bytes(os.urandom(size))  # as long as it was: only reading tells
    answer = call("stage", {"store": str(site.store), **request})
    assert answer.code == 1
    what = "cannot be mended: its source is not what it was staged from"
    assert answer.last["what"] == f"{called(mirror, SHARD)} {what}"
    assert "remove it, then hf download demo-org/demo-model --revision " in answer.last["next"]
    assert f"repair {called(mirror, SHARD)}: differs from its ledger ({size} bytes, one chunk)" in answer.logs
    blob.write_bytes(site.nas.files[SHARD])
    again = call("stage", {"store": str(site.store), **request})
    assert again.code == 0, again.events
    assert look_here(site.mirror, key=key("b"), linked=True)["problems"] == []
