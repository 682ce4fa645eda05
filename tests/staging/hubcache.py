"""Hub caches of every layout there is, made with plain system calls: see docs/staging.md."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

COMMIT = "dba1be0a" * 5
OTHER = "fb2764a5" * 5
REPO = "demo-org/demo-model"

LINK, ABSOLUTE, REAL, TWO_HOP, TWO_HOP_ABSOLUTE = "link", "absolute", "real", "two-hop", "two-hop-absolute"
WAYS = (LINK, ABSOLUTE, REAL, TWO_HOP, TWO_HOP_ABSOLUTE)


def etag_of(data: bytes, *, lfs: bool = True) -> str:
    """The name of a blob: sha256 of a large file, sha1 of git's blob object of another."""
    if lfs:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def xet_of(data: bytes) -> str:
    """64 hex digits that are no sha256 of the content, as the names in the shared store."""
    return hashlib.blake2b(data, digest_size=32, key=b"xet").hexdigest()


class HubCache:
    """One repository in a cache. `root` is the folder that has models--*; `moved` stands for the place where the cache
    was when its absolute links were written.
    """

    def __init__(self, root: Path, repo: str = REPO, commit: str = COMMIT, moved: Path | None = None) -> None:
        self.root, self.repo, self.commit, self.moved = root, repo, commit, moved or root
        self.name = f"models--{repo.replace('/', '--')}"
        self.files: dict[str, bytes] = {}
        self.tree: dict[str, dict[str, Any]] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("refs", "blobs", "snapshots"):
            (self.folder / name).mkdir(exist_ok=True)
        self.snapshot.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.commit

    def blob(self, path: str) -> Path:
        """The blob of a path of the snapshot: a file, or a link into the shared store."""
        return self.folder / "blobs" / os.readlink(self.snapshot / path).rpartition("/")[2]

    def add(self, path: str, data: bytes, way: str = LINK, *, lfs: bool = True) -> str:
        """A file of the commit; returns its etag."""
        etag, place = etag_of(data, lfs=lfs), self.snapshot / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self.files[path] = data
        self.tree[path] = {"size": len(data), "blob_id": etag_of(data, lfs=False)}
        if lfs:
            self.tree[path] |= {"lfs_sha256": etag, "lfs_size": len(data), "xet_hash": xet_of(data)}
        if way == REAL:
            place.write_bytes(data)
            return etag
        blob = self.folder / "blobs" / etag
        if way in (TWO_HOP, TWO_HOP_ABSOLUTE):
            self._store(blob, data, absolute=way == TWO_HOP_ABSOLUTE)
        elif not os.path.lexists(blob):
            blob.write_bytes(data)
        up = "../" * (2 + path.count("/"))
        text = f"{self.moved}/{self.name}/blobs/{etag}" if way == ABSOLUTE else f"{up}blobs/{etag}"
        place.symlink_to(text)
        return etag

    def _store(self, blob: Path, data: bytes, *, absolute: bool) -> None:
        xet = xet_of(data)
        store = self.root / "blobs"
        (store / xet[:2]).mkdir(parents=True, exist_ok=True)
        (store / ".huggingface-shared-blobs").write_text("1\n")
        if os.path.lexists(blob):
            return
        stored = store / xet[:2] / xet
        if not stored.exists():
            stored.write_bytes(data)
            stored.chmod(0o444)
        (store / xet[:2] / f"{xet}.refs").write_text(f"{self.name}/blobs/{blob.name}\n")
        (store / xet[:2] / f"{xet}.lock").touch()
        above = str(self.moved) if absolute else "../.."
        blob.symlink_to(f"{above}/blobs/{xet[:2]}/{xet}")

    def ref(self, name: str = "main", text: str = "") -> None:
        place = self.folder / "refs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text or self.commit)

    def write_tree(self) -> None:
        """What `snapshot_download` keeps of the commit's listing."""
        (self.folder / "trees").mkdir(exist_ok=True)
        value = {"format_version": 1, "files": self.tree}
        (self.folder / f"trees/{self.commit}.json").write_text(json.dumps(value, indent=1))

    def leftovers(self) -> None:
        """What a cache of some age has besides: all of it is to stay behind."""
        (self.root / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
        blobs = self.folder / "blobs"
        (blobs / f"{'ab' * 32}.incomplete").write_bytes(b"half")
        (blobs / f"{'cd' * 32}.0badf00d.incomplete").write_bytes(b"half")
        (blobs / ("ef" * 32)).write_bytes(b"of another revision")
        (self.folder / "snapshots" / OTHER).mkdir()
        (self.folder / "snapshots" / OTHER / "old.bin").symlink_to(f"../../blobs/{'ef' * 32}")
        (self.folder / "snapshots" / OTHER / "gone.bin").symlink_to(f"../../blobs/{'99' * 32}")
        for folder in (self.root / ".locks" / self.name, self.folder / ".no_exist" / self.commit):
            folder.mkdir(parents=True)
            (folder / "nothing").touch()
        (self.root / "models--another--model" / "blobs").mkdir(parents=True)


def usual(root: Path, **more: Any) -> HubCache:
    """A small model as `hf download` leaves it, with main on its commit."""
    cache = HubCache(root, **more)
    cache.add("config.json", b'{"model_type": "demo"}', lfs=False)
    cache.add("model-00001-of-00002.safetensors", b"first shard " * 1000)
    cache.add("model-00002-of-00002.safetensors", b"other shard " * 1000)
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    cache.add("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": shards}).encode(), lfs=False)
    cache.ref()
    return cache
