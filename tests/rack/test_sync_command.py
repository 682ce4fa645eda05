"""`doit sync` as an operator types it: the plan says which layers move, and those move."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tests.rack.lanes import Lanes
from tests.rack.syncing import received

IMAGE = "demo-ranks"


def linked(source: str, target: str) -> None:
    """A second name of a file, or a copy where the two folders are on two disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def test_one_file_changes_and_one_layer_moves(lanes: Lanes, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(lanes.store, store, copy_function=linked, symlinks=True)  # what is made there stays here
    lanes.store = store
    lanes.config()
    first, second = lanes.nodes[:2]
    for node in (first, second):  # brought by this workspace, so that it can say what is another since
        found = node.docker("images", "--format", "{{.Repository}}:{{.Tag}}", f"sparkbuild/{IMAGE}").out.split()
        if found:
            node.docker("rmi", "--force", *found)
    lanes.ok("sync")
    assert lanes.states("sync")[f"sync:{IMAGE}:{first.name}"] == "ok"

    ranks = lanes.root / "images" / IMAGE / "ranks.py"
    ranks.write_text(f"{ranks.read_text()}\n# changed\n")
    lanes.ok(f"image:{IMAGE}")
    steps = {step["task"]: step for step in json.loads(lanes.ok("plan", "--json", "sync").out)["goals"]}
    for node in (first, second):
        step = steps[f"sync:{IMAGE}:{node.name}"]
        assert step["state"] == "run"
        assert 0 < step["bytes"] < 1_000_000
        assert [reason["text"] for reason in step["reasons"]][1:] == ["1 of 3 layers are missing there"]
        assert step["reasons"][0]["text"].startswith("file ranks.py: ")
    before = [received(node) for node in (first, second)]
    lanes.ok("sync")
    for node, start in zip((first, second), before, strict=True):
        assert received(node) - start < steps[f"sync:{IMAGE}:{node.name}"]["bytes"] + 600_000
    assert "nothing to do" in lanes.ok("plan", "sync").out

    key = second.docker("images", "-q", f"sparkbuild/{IMAGE}").out.split()
    second.docker("image", "rm", "-f", *key)
    states = lanes.states("sync")
    assert states[f"sync:{IMAGE}:{first.name}"] == "ok"
    assert states[f"sync:{IMAGE}:{second.name}"] == "run"
    lanes.ok("sync")
    assert "nothing to do" in lanes.ok("plan", "sync", "prune").out
