"""Exports on real nodes with docker: what an engine sees, and what does not change under one that runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rack.lanes import NAME, RECIPE, STORE, Lanes, record, shell
from tests.rack.node import Node
from tests.staging.hubcache import REPO, TWO_HOP, HubCache, usual

pytestmark = pytest.mark.usefixtures("possible")
PAGES = ("page15/engram-01.bin", "page15/engram-14.bin")
LOCAL = b'{"layers": {}}'
SHARD = "model-00001-of-00002.safetensors"
OWN = (2).to_bytes(8, "little") + b"{}"  # the shortest file of that format
STAGING = f"""
[[staging]]
id = "model"
kind = "hub-mirror"
src = "/srv/nas/hub"
repos = ["{REPO}"]
skip = ["page15/*"]

[[staging.exports]]
kind = "tree"
id = "files"
target = "/model"
binds = ["page15/*"]

[[staging.exports]]
kind = "composed"
id = "put"
target = "/composed"
over = ["local"]

[[staging]]
id = "local"
kind = "files"
src = "/srv/nas/local"
skip = ["model-00002-of-00002.safetensors"]
"""
# What a runtime that is strict about its files asks of each: no link anywhere in the path, a file system to read from.
LOOK = """
import json, os, stat
def seen(top):
    found = {}
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            if "/.sparkbuild/" in path: continue
            fd = os.open(path, os.O_RDONLY | (os.O_NOFOLLOW if top == "/model" else 0))
            found[os.path.relpath(path, top)] = [
                os.path.realpath(path) == path, stat.S_ISREG(os.fstat(fd).st_mode), bool(os.statvfs(path).f_flag & 1),
                os.read(fd, 1 << 20).decode(),
            ]
    return found
print(json.dumps([seen("/model"), seen("/composed")]))
"""


def inside(node: Node, program: str) -> str:
    """What a Python program prints in the lane's container."""
    return node.docker("exec", NAME, "/usr/bin/python3.11", "-c", program).out


def nas_of(node: Node) -> HubCache:
    """The same data on each node, in the place of a NAS."""
    shell(node, "rm -rf /srv/nas")
    cache = usual(node.path("/srv/nas/hub"))
    for name in PAGES:
        cache.add(name, f"rows of {name} ".encode() * 500, TWO_HOP)
    local = node.path("/srv/nas/local")
    local.mkdir()
    (local / "engram-local.json").write_bytes(LOCAL)
    (local / SHARD).write_bytes(OWN)
    return cache


@pytest.fixture
def nas(lanes: Lanes) -> Any:
    """The recipe with exports, its lane only sleeping."""
    found, _ = (nas_of(node) for node in lanes.nodes[:2])
    lanes.sleeping()
    text = lanes.path().read_text().partition("[[staging]]")[0]
    lanes.path().write_text(text + STAGING)
    yield found
    lanes(f"stop:{RECIPE}")
    for node in lanes.nodes[:2]:
        shell(node, f"rm -rf /srv/nas {STORE}/staged/{RECIPE} {STORE}/exported")


def test_what_a_container_sees(lanes: Lanes, nas: HubCache) -> None:
    plan = lanes.ok("plan", "-v", f"serve:{RECIPE}").out
    assert "mounts of export files: known once it is staged" in plan
    assert f"mount {STORE}/exported/{RECIPE}/model/files at /model, read-only" in plan
    lanes.ok(f"serve:{RECIPE}")
    for node in lanes.nodes[:2]:
        tree, composed = json.loads(inside(node, LOOK))
        assert {name: data.encode() for name, (*_, data) in tree.items()} == nas.files
        for name, (plain, regular, read_only, _) in tree.items():
            assert (plain, regular, read_only) == (True, True, True), name
        wanted = {name: data for name, data in nas.files.items() if name not in PAGES}
        wanted |= {"engram-local.json": LOCAL, SHARD: OWN}
        assert {name: data.encode() for name, (*_, data) in composed.items()} == wanted
        assert {name for name, (plain, *_) in composed.items() if plain} == {"engram-local.json", SHARD}
        uses = record(node)["uses"]
        assert f"{STORE}/staged/{RECIPE}/model" in uses
        assert f"{STORE}/exported/{RECIPE}/model/files" in uses
        assert not any(path.startswith("/srv/nas") for path in uses)
    plan = lanes.ok("plan", "-v", f"serve:{RECIPE}").out
    assert "known once it is staged" not in plan
    assert plan.count(" at /model/page15/engram-") == 4, "two files on two nodes"
    assert not any("export" in text for text in lanes.reasons()), "it only is not ready: it sleeps"
    assert lanes.state(f"stage:{RECIPE}:{lanes.nodes[0].name}:model:files") == "ok"

    lanes.edit('target = "/model"\nbinds = ["page15/*"]', 'target = "/model"\nsubtree = "page15"\nbinds = ["page15/*"]')
    refused = lanes(f"stage:{RECIPE}")
    assert refused.code != 0
    assert "is refused while a lane uses it" in refused.text
    assert f"doit stop:{RECIPE}" in refused.text
    again, _ = json.loads(inside(lanes.nodes[0], LOOK))
    assert sorted(again) == sorted(nas.files), "nothing changed under it"

    lanes.ok(f"stop:{RECIPE}")
    lanes.ok(f"stage:{RECIPE}")
    names = shell(lanes.nodes[0], f"cd {STORE}/exported/{RECIPE}/model/files && find . -type f -not -path '*/.spark*'")
    assert set(names.split()) == {"./engram-01.bin", "./engram-14.bin"}
    shell(lanes.nodes[0], "rm -r /srv/nas/hub/blobs")
    gone = lanes.ok("plan", f"serve:{RECIPE}").out
    assert "which a mount names" in gone
