"""The demo on two nodes with staged data of each kind beside its weights: staged, served, seen in its container."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rack.lanes import NAME, RECIPE, STORE, Lanes, record, shell
from tests.rack.nas import Nas
from tests.staging.checkpoint import LAYERS, Checkpoint, make
from tests.staging.hubcache import COMMIT, REPO, TWO_HOP, HubCache, usual
from tests.staging.readers import Packed, SparseCopy

pytestmark = pytest.mark.usefixtures("nas_python")
AT = "/mnt/nas"
STAGED = f"{STORE}/staged/{RECIPE}"
BLOCKS = f"""
[[staging]]
id = "rows"
kind = "sparse-rows"
src = "{AT}/checkpoint"
split = "heads"

[[staging]]
id = "holes"
kind = "sparse-rows"
src = "{AT}/checkpoint"
layout = "sparse-copy"
only_ranks = [1]

[[staging]]
id = "model"
kind = "hub-mirror"
src = "{AT}/hub"
repos = ["{REPO}"]

[[staging.exports]]
kind = "tree"
id = "files"
target = "/model"
"""
# For each file: is it a regular file with no link on its way, can it be opened to write, what is in it.
LOOK = """
import hashlib, json, os, stat, sys
found = {}
for top in sys.argv[1:]:
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            if "/.sparkbuild/" in path: continue
            plain = os.path.realpath(path) == path and stat.S_ISREG(os.lstat(path).st_mode)
            try: os.close(os.open(path, os.O_WRONLY)); why = "writable"
            except OSError as error: why = error.strerror
            found[path] = [plain, why, hashlib.sha256(open(path, "rb").read()).hexdigest()]
print(json.dumps(found))
"""
READ_ONLY = "Read-only file system"


class Data:
    """What is on the NAS."""

    def __init__(self, root: Path) -> None:
        self.checkpoint: Checkpoint = make(root / "checkpoint", vocab=300)
        self.hub: HubCache = usual(root / "hub")
        self.hub.add("deep/table.bin", b"shared" * 99_999, TWO_HOP)
        self.root = root


@pytest.fixture
def data(lanes: Lanes, tmp_path: Path) -> Iterator[Data]:
    """The NAS on both nodes, and the recipe with a block of each kind."""
    made = Data(tmp_path / "nas")
    nas: Nas = lanes.rack.nas(made.root, mb_per_s=100, latency_ms=0.5)
    for node in lanes.nodes[:2]:
        nas.mount(node, AT)
    lanes.path().write_text(lanes.path().read_text() + BLOCKS)
    lanes.edit("[serve]", '[serve.env]\nROWS = "{{ staged.rows }}"\nFILES = "{{ exports.files }}"\n\n[serve]')
    yield made
    lanes(f"stop:{RECIPE}")
    for node in lanes.nodes[:2]:
        nas.unmount(node, AT)
        shell(node, f"rm -rf {STAGED}/rows {STAGED}/holes {STAGED}/model {STORE}/exported")


def test_staged_served_and_seen(lanes: Lanes, data: Data) -> None:
    lanes.ok("stage")
    cuts = {layer: [0, sum(table.heads[:12]), table.rows] for layer, table in data.checkpoint.tables.items()}
    for rank, node in enumerate(lanes.nodes[:2]):
        for layer, table in data.checkpoint.tables.items():
            file = node.path(f"{STAGED}/rows/engram-l{layer}-r{rank}of2.bin")
            reader = Packed(file, layer, cuts[layer][rank], cuts[layer][rank + 1], table.rows)
            assert list(reader.rows()) == [table.row(number) for number in range(reader.lo, reader.hi)]
            reader.close()
    holes = lanes.nodes[1].path(f"{STAGED}/holes")
    copy = SparseCopy(holes, {layer: table.rows for layer, table in data.checkpoint.tables.items()})
    for layer in LAYERS:
        table = data.checkpoint.tables[layer]
        assert copy.ranges[layer] == (table.rows // 2, table.rows), "the even split"
        assert copy.rows(layer, *copy.ranges[layer]) == [table.row(one) for one in range(*copy.ranges[layer])]
    assert not lanes.nodes[0].path(f"{STAGED}/holes").exists(), "only_ranks"

    row = lanes.serve()
    assert row["state"] == "serving"
    assert lanes.answers()
    for rank, node in enumerate(lanes.nodes[:2]):
        seen = look(lanes, rank, "/model", f"{STAGED}/model", f"{STAGED}/rows")
        assert {why for _, why, _ in seen.values()} == {READ_ONLY}
        tree = {path.removeprefix("/model/"): one for path, one in seen.items() if path.startswith("/model/")}
        assert {path: digest for path, (_, _, digest) in tree.items()} == {
            path: sha256(content) for path, content in data.hub.files.items()
        }
        assert all(plain for plain, _, _ in tree.values()), "regular files, no link on the way"
        snapshot = f"{STAGED}/model/{data.hub.name}/snapshots/{COMMIT}"
        for path, content in data.hub.files.items():
            assert seen[f"{snapshot}/{path}"][2] == sha256(content), "links that end in the container too"
        rows = [path for path in seen if path.startswith(f"{STAGED}/rows/")]
        assert sorted(rows) == [f"{STAGED}/rows/engram-l{layer}-r{rank}of2.bin" for layer in LAYERS]
        uses = set(record(node)["uses"])
        assert {f"{STAGED}/rows", f"{STAGED}/model"} <= uses
    before = len(lanes.runs())
    lanes.ok(f"serve:{RECIPE}")
    assert not [entry for entry in lanes.runs()[before:] if entry["event"] == "start"]


def look(lanes: Lanes, rank: int, *folders: str) -> dict[str, Any]:
    """What the container of a rank sees in these folders."""
    out = lanes.nodes[rank].docker("exec", NAME, "/usr/bin/python3.11", "-c", LOOK, *folders).out
    return dict(json.loads(out))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
