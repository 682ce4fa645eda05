"""What lies in a node's store beside data: manifests of exports, notes of evictions, receipts, lists of files. Other
users, other versions and broken disks write there too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.evict import attached
from sparkbuild.agent.export import look
from sparkbuild.agent.image import archives, tree
from sparkbuild.agent.ledger import evicted, index, mountlist
from sparkbuild.agent.source import sparsecopy
from sparkbuild.agent.store import layerstore
from sparkbuild.agent.wire.protocol import AgentError
from tests.parsers.near import bounded, json_like

EXPORT = {
    "format": mountlist.FORMAT, "version": mountlist.VERSION, "key": "c" * 64, "parts": {"kind": "export"},
    "commit": "a" * 40,
    "source": "/cache", "target": "/model", "at": 1.0, "sources": [{"folder": "/srv/x", "ledger": [1, 2, 3, 4, 5]}],
    "files": [{"name": "a.bin", "of": "/srv/x/a.bin", "dev": 1, "ino": 2}],
    "pointers": [{"name": "b.json", "text": "../b.json"}], "empty": ["c.bin"],
    "mounts": [{"source": "/d", "target": "/model", "read_only": True},
               {"source": "/srv/c.bin", "target": "/model/c.bin", "read_only": True}],
}  # fmt: skip
RECEIPT: dict[str, Any] = {
    "format": archives.RECEIPT_FORMAT, "name": "x", "reference": "x:1", "key": "c" * 64, "parts": {"kind": "docker"},
    "lock": "x@1", "layers": ["sha256:" + "a" * 64], "sizes": [5], "config": "sha256:" + "b" * 64, "at": 1.0,
    "architecture": "amd64", "gates": [], "bytes": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    for name in ("export/.sparkbuild", "staged-index", f"archives/x/{'c' * 12}", "venv", "sources"):
        (folder / name).mkdir(parents=True)
    return folder


@given(data=json_like(EXPORT))
def test_the_manifest_of_an_export(store: Path, data: bytes) -> None:
    dst = str(store / "export")
    Path(mountlist.path_of(dst)).write_bytes(data)
    with bounded(AgentError, OSError):  # what the disk says of a name is that look's problem, see agent/facts.py
        json.dumps(look.observe({"store": str(store), "dst": dst, "key": "c" * 64}))
        attached.export(dst)


@pytest.mark.parametrize("text", ["a\0b", "\ude0a"])
@pytest.mark.parametrize("field", ["source", "target", "of", "folder"])
def test_a_path_that_no_system_call_takes(store: Path, field: str, text: str) -> None:
    """Of a manifest, and of the list of an environment's files."""
    manifest = json.loads(json.dumps(EXPORT))
    for table in (manifest, *manifest["files"], *manifest["sources"], *manifest["mounts"]):
        table.update({field: text} if field in table else {})
    dst = str(store / "export")
    Path(mountlist.path_of(dst)).write_text(json.dumps(manifest))
    assert "unreadable" in look.observe({"store": str(store), "dst": dst})["problem"]
    (store / "venv/tree.json").write_text(json.dumps({"files": {text: "e" * 64}}))
    assert tree.problem(str(store / "venv"))


@given(data=json_like({"format": evicted.FORMAT, "dst": "/srv/gone", "at": 1.0, "for": "recipe beta"}))
def test_a_note_of_an_eviction(store: Path, data: bytes) -> None:
    Path(index.path_of(str(store), "/srv/gone", index.EVICTED)).write_bytes(data)
    with bounded():
        json.dumps(evicted.told(str(store), "/srv/gone"))


@given(data=json_like(RECEIPT))
def test_the_receipt_of_an_image(store: Path, data: bytes) -> None:
    folder = Path(archives.folder_of(str(store), "x", "c" * 12))
    (folder / "receipt.json").write_bytes(data)
    (folder / "config.json").write_bytes(b"{}")
    with bounded():
        for key in ("c" * 64, "d" * 64):
            json.dumps(archives.observe({"store": str(store), "name": "x", "key": key}))
        archives._prune(str(folder.parent), "", _Mute())  # type: ignore[arg-type]


class _Mute:
    def log(self, _text: str) -> None:
        """Nobody listens."""


@given(data=json_like({"files": {"a.py": "e" * 64}}), stamps=json_like({"stamps": {"a.py": [1, 2, 3, 4, 5]}}))
def test_the_files_of_an_environment(store: Path, data: bytes, stamps: bytes) -> None:
    (store / "venv/a.py").write_bytes(b"x")
    (store / "venv/tree.json").write_bytes(data)
    (store / "venv/stamps.json").write_bytes(stamps)
    with bounded():
        tree.problem(str(store / "venv"))


@given(data=json_like({"stamp": [1, 2, 3, 4, 5]}))
def test_the_stamp_of_a_layer(store: Path, data: bytes) -> None:
    digest = "sha256:" + "f" * 64
    Path(layerstore.folder_of(str(store))).mkdir(parents=True, exist_ok=True)
    Path(layerstore.path_of(str(store), digest)).write_bytes(b"x")
    stamp = Path(layerstore._stamp(str(store), digest))
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_bytes(data)
    with bounded():
        layerstore.problem(str(store), digest, 1)


@given(data=json_like({"layers": {"1": [0, 5], "2": [5, 9]}}))
def test_the_rows_of_a_sparse_copy(store: Path, data: bytes) -> None:
    (store / "rows.json").write_bytes(data)
    with bounded(AgentError):
        sparsecopy._ranges(str(store / "rows.json"))


@given(data=json_like({"format": "x", "sha256": "a" * 64}))
def test_any_object_of_a_store(store: Path, data: bytes) -> None:
    (store / "any.json").write_bytes(data)
    with bounded():
        found = read_json(str(store / "any.json"))
        assert found is None or isinstance(found, dict)
