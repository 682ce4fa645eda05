"""A mirror on a node: made by the agent's own verb, and judged by huggingface_hub."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

from huggingface_hub import scan_cache_dir, snapshot_download

from sparkbuild.agent.stage import verify
from tests.agent.driver import Answer, call, key
from tests.staging.hubcache import COMMIT, REPO, HubCache


class Mirror:
    """`cache` is the hub cache on the node, `folder` the mirrored repository in it."""

    def __init__(self, cache: Path, repo: str = REPO) -> None:
        self.cache, self.repo = cache, repo
        self.folder = cache / f"models--{repo.replace('/', '--')}"

    def call(self, source: Path, revision: str = "main", skip: tuple[str, ...] = ()) -> Answer:
        return call("stage", {**self._request(source, revision, skip), "parts": {}, "min_free": 0})

    def look(self, source: Path) -> dict[str, Any]:
        """What a plan is told of it."""
        return verify.observe({**self._request(source, "main", ()), "full": False, "linked": False})

    def _request(self, source: Path, revision: str, skip: tuple[str, ...]) -> dict[str, Any]:
        what = {"kind": "hub-mirror", "cache": str(source), "repo": self.repo, "revision": revision}
        return {"store": "/", "dst": str(self.folder), "key": key(), "what": {**what, "skip": list(skip)}}

    def stage(self, source: Path, **more: Any) -> dict[str, Any]:
        """Make or mend it; what the source was found to be."""
        answer = self.call(source, **more)
        assert answer.code == 0, answer.events
        about: dict[str, Any] = answer.last["about"]
        return about

    def refused(self, source: Path, **more: Any) -> dict[str, Any]:
        answer = self.call(source, **more)
        assert answer.code == 1, answer.events
        return answer.last

    def is_link(self, name: str) -> bool:
        return (self.folder / name).is_symlink()

    def names(self) -> list[str]:
        """Every file and link, without what staging keeps for itself."""
        found = [
            os.path.relpath(os.path.join(base, name), self.folder)
            for base, _, names in os.walk(self.folder)
            for name in names
        ]
        return sorted(name for name in found if not name.startswith(".sparkbuild/"))

    def holds(self, cache: HubCache, skip: tuple[str, ...] = (), revision: str = "main") -> None:
        """The wanted files of a source are here, readable by huggingface_hub and complete to it; nothing else is."""
        wanted = {
            path: data
            for path, data in cache.files.items()
            if not any(fnmatch.fnmatchcase(path, glob) for glob in skip)
        }
        info = scan_cache_dir(self.cache)
        assert info.warnings == []
        assert not info.incomplete_files
        found = Path(snapshot_download(self.repo, cache_dir=self.cache, revision=revision, local_files_only=True))
        assert found == self.folder / "snapshots" / COMMIT
        inside = {str(path.relative_to(found)): path for path in found.rglob("*") if not path.is_dir()}
        assert {path: file.read_bytes() for path, file in inside.items()} == wanted
        reached = {os.path.basename(os.readlink(file)) for file in inside.values() if file.is_symlink()}
        blobs = list((self.folder / "blobs").iterdir()) if reached else []
        assert {blob.name for blob in blobs} == reached
        assert all(blob.is_file() and not blob.is_symlink() for blob in blobs)
        assert {path.split("/")[0] for path in self.names()} <= {"blobs", "refs", "snapshots", "trees"}
