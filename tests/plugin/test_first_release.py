"""What an earlier version left on a disk is read by this one: nothing is staged again, and a lane's record is known.

`first_release/` has the side records of folders staged from `tests.staging.checkpoint.make(vocab=5)` by the version of
2026-11-30 (commit e8fe18f), with @ROOT@ for the workspace. The data itself is made here: the ledgers prove it.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sparkbuild.agent.ledger import index
from tests.plugin.tiny import tiny
from tests.staging.checkpoint import make
from tests.workspace_tool import Tool

RECORDS = Path(__file__).parent / "first_release"
MIRROR = "staged/r0/model/models--acme--tiny-flash"
FOLDERS = {  # where the records of each folder lie in the store
    "model": MIRROR,
    "packed": "staged/r0/packed",
    "page15": "staged/r0/page15",
    "sparse": "staged/r0/sparse",
    "links": "exported/r0/model/links",
}
BLOCK = """
[[staging]]
id = "{id}"
src = "{src}"
repos = ["acme/tiny-flash"]
kind = "{kind}"
"""
EXPORT = """
[[staging.exports]]
kind = "tree"
id = "links"
target = "/model"
"""


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """A workspace whose data was staged, and whose lane was launched, by the earlier version."""
    root = tmp_path_factory.mktemp("upgraded")
    make(root / "hub", vocab=5, as_hub_cache=True)
    blocks = BLOCK.format(id="model", src=root / "hub", kind="hub-mirror") + EXPORT
    for block, layout in (("packed", "packed"), ("page15", "page15"), ("sparse", "sparse-copy")):
        blocks += BLOCK.format(id=block, src=root / "hub", kind="sparse-rows")
        blocks += f'layout = "{layout}"\nsplit = "even"\n'
    tool = tiny(root, blocks)
    tool.ok("stage:r0")
    for path in RECORDS.iterdir():
        _put(root, path)
    return tool


def _put(root: Path, path: Path) -> None:
    store = root / ".sparkbuild/node"
    if path.name == "engram-local.json":  # the one staged file that names its source, which was elsewhere
        (store / FOLDERS["sparse"] / path.name).write_bytes(path.read_bytes())
        return
    text = path.read_text().replace("@ROOT@", str(root)).replace("@HOST@", socket.gethostname())
    block, _, record = path.name.partition(".")
    if path.name == "lane.json":
        place = store / "lanes/r0/lane.json"
        place.parent.mkdir(parents=True)
    elif record == "index.json":
        place = Path(index.path_of(str(store), json.loads(text)["dst"]))
        assert place.exists(), "this version has its entry at the same place"
    else:
        place = store / FOLDERS[block] / ".sparkbuild" / record
        assert place.exists(), "this version has a record of that name too"
    place.write_text(text)


def test_what_it_staged_is_right(upgraded: Tool) -> None:
    states = upgraded.states("stage:r0")
    assert set(states.values()) == {"ok"}, upgraded.ok("plan", "stage:r0")
    assert len(states) == len(FOLDERS)
    ledger = upgraded.root / ".sparkbuild/node" / FOLDERS["packed"] / ".sparkbuild/ledger.json"
    written = json.loads((RECORDS / "packed.ledger.json").read_text())["key"]
    assert json.loads(ledger.read_text())["key"] == written


def test_a_wrong_byte_in_it_is_seen(upgraded: Tool) -> None:
    """By the digests of the earlier ledger."""
    path = upgraded.root / ".sparkbuild/node" / FOLDERS["packed"] / "engram-l14-r0of1.bin"
    with path.open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    states = upgraded.states("stage:r0")
    assert [task for task, state in states.items() if state != "ok"] == ["stage:r0:local:packed"]
    upgraded.ok("stage:r0")
    assert set(upgraded.states("stage:r0").values()) == {"ok"}


def test_its_lane_is_known(upgraded: Tool) -> None:
    (lane,) = json.loads(upgraded.ok("status", "--json").out)["lanes"]
    assert lane["recipe"] == "r0"
    assert lane["state"].startswith("dead (was not stopped)"), lane
    assert upgraded.plan("serve:r0")["serve:r0"]["reasons"][0]["text"].startswith("process 6432 is gone")
