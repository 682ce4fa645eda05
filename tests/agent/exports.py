"""An export for tests: a hub cache as the NAS has it, its mirror by the agent's own verb, and calls on the export."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from sparkbuild.agent.export import look
from sparkbuild.agent.stage import stage
from tests.agent.driver import Answer, Silent, call, finish, key, list_of, stage_here, start
from tests.staging.hubcache import REPO, TWO_HOP, usual

PAGES = ("page15/engram-01.bin", "page15/engram-14.bin")


class Site:
    """`nas` is the source; `mirror` the mirrored repository's folder, `dst` the export's, both in `store`."""

    def __init__(self, root: Path) -> None:
        self.store = root / "store"
        self.nas = usual(root / "nas")
        for name in PAGES:
            self.nas.add(name, f"rows of {name} ".encode() * 500, TWO_HOP)
        self.nas.add("draft/model.safetensors", b"a small one " * 100)
        self.nas.add("draft/config.json", b"{}", lfs=False)
        self.mirror = self.store / "staged/m" / f"models--{REPO.replace('/', '--')}"
        self.dst = self.store / "exported/m"

    def mirrored(self, *skip: str, **more: Any) -> dict[str, Any]:
        what = {"kind": "hub-mirror", "cache": str(self.nas.root), "repo": REPO, "revision": "main", "skip": list(skip)}
        request = {"store": str(self.store), "dst": str(self.mirror), "key": key("b"), "parts": {}, "what": what}
        return stage_here({**request, "linked": True, **more})

    def over(self, name: str, files: list[dict[str, Any]]) -> Path:
        """A staged folder of plain files."""
        dst = self.store / "staged" / name
        stage_here({**list_of(dst, files), "linked": True})
        return dst

    def tree(self, *binds: str, subtree: str = "", target: str = "/model") -> dict[str, Any]:
        source = {"cache": str(self.nas.root), "repo": REPO, "revision": "main"}
        fields = {"subtree": subtree, "binds": list(binds), "source": source, "target": target}
        return {"kind": "tree", "mirror": str(self.mirror), **fields}

    def composed(self, *over: Path, target: str = "/model") -> dict[str, Any]:
        return {"kind": "composed", "mirror": str(self.mirror), "over": list(map(str, over)), "target": target}

    def request(self, what: dict[str, Any], char: str = "e") -> dict[str, Any]:
        parts = {"kind": what["kind"], "target": what["target"]}
        return {"store": str(self.store), "dst": str(self.dst), "key": key(char), "parts": parts, "what": what}

    def export(self, what: dict[str, Any], shim: str = "", **more: Any) -> Answer:
        return finish(start("linktree", {**self.request(what), **more}, shim=shim))

    def made(self, what: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = self.export(what, **more)
        assert answer.code == 0, (answer.events, answer.stderr)
        return answer.last

    def refused(self, what: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = self.export(what, **more)
        assert answer.code == 1, answer.events
        assert answer.stderr == ""
        return answer.last

    def look(self, what: dict[str, Any] | None = None) -> dict[str, Any]:
        query = {"store": str(self.store), "dst": str(self.dst)}
        return look.observe({**query, **({"what": what} if what else {})})

    def texts(self, what: dict[str, Any] | None = None) -> list[str]:
        return [problem["text"] for problem in self.look(what)["problems"]]

    def blob(self, path: str) -> Path:
        """The mirror's file of a path of the snapshot."""
        return self.mirror / "blobs" / os.readlink(self.nas.snapshot / path).rpartition("/")[2]

    def names(self) -> list[str]:
        found = [
            str(path.relative_to(self.dst)) for path in self.dst.rglob("*") if not path.is_dir() or path.is_symlink()
        ]
        return sorted(name for name in found if not name.startswith(".sparkbuild/"))

    def read_to_check(self, *skip: str) -> list[tuple[str, int]]:
        """The bytes that staging the mirror again reads of what is there."""
        seen = Watched()
        what = {"kind": "hub-mirror", "cache": str(self.nas.root), "repo": REPO, "revision": "main", "skip": list(skip)}
        request = {"store": str(self.store), "dst": str(self.mirror), "key": key("b"), "parts": {}, "what": what}
        result = stage.run({**request, "linked": True}, seen)
        assert result["bytes"] == 0
        return seen.checked


class Watched(Silent):
    """Keeps what was told of reading."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[tuple[str, int]] = []

    def progress(self, phase: str, done: int, total: int | None) -> None:
        del total
        self.checked.append((phase, done))


def running(store: Path, recipe: str, uses: list[str], argv: list[str] | None = None) -> None:
    """A lane that really runs: a process with a record."""
    request = {
        "store": str(store),
        "recipe": recipe,
        "launch": "l1",
        "rank": 0,
        "world_size": 1,
        "key": key(),
        "env": {},
    }
    request |= {"parts": {}, "argv": argv or ["/bin/sleep", "60"], "host": "127.0.0.1", "port": 0, "model_id": "m"}
    answer = call("launch", {**request, "uses": uses})
    assert answer.code == 0, answer.events


def stopped(store: Path, recipe: str) -> None:
    answer = call("stop", {"store": str(store), "recipe": recipe, "grace": 1.0})
    assert answer.code == 0, answer.events


def safetensors(tensors: dict[str, int]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """A shard of tensors of so many bytes, and where each lies."""
    entries, at = {}, 0
    for name, size in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(entries).encode()
    base = 8 + len(head)
    places = {name: tuple(base + offset for offset in one["data_offsets"]) for name, one in entries.items()}
    return struct.pack("<Q", len(head)) + head + os.urandom(at), places
