"""What staging finds on a disk that others can write: ledgers, drafts, stamps, owners, the index of staged folders."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.ledger import index, ledger, ownership, part, stamps
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import LedgerError
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.ledger.shape import Shape
from tests.parsers.near import bounded, damaged, json_like

FILE = {
    "name": "deep/a.bin", "size": 5, "sha256": "a" * 64, "chunks": base64.b64encode(bytes(8)).decode(),
    "source": {"sha256": "b" * 64}, "extents": [[0, 5]],
}  # fmt: skip
LEDGER = {
    "format": "sparkbuild-ledger", "version": 2, "key": "c" * 64, "parts": {"kind": "files"}, "digest": "xxh3",
    "chunk": 4 << 20, "at": 1.0, "about": {"revision": "x"}, "files": [FILE],
    "links": [{"name": "l/b", "text": "../deep/a.bin"}],
}  # fmt: skip
STAMPS = {"key": "c" * 64, "files": {"deep/a.bin": [1, 2, 3, 4, 5]}}
OWNER = {"recipe": "alpha", "id": "files", "store": "/srv", "workspace": "w", "host": "h", "user": "u", "at": 1.0}
INDEX = {"dst": "/srv/x", "goal": "staged://dgx1/alpha/files", "key": "c" * 64, "bytes": 5, "at": 1.0, "served": 1.0}


@pytest.fixture(scope="module")
def dst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dst")
    (folder / ".sparkbuild").mkdir()
    (folder / "staged-index").mkdir()
    return folder


@given(data=json_like(LEDGER))
def test_a_ledger(data: bytes) -> None:
    with bounded(LedgerError):
        ledger.parse(data)


@given(lines=st.lists(st.one_of(json_like({**FILE, "digest": "xxh3"}), json_like(LEDGER["links"])), max_size=4))
def test_a_draft(dst: Path, lines: list[bytes]) -> None:
    (dst / ".sparkbuild/draft.jsonl").write_bytes(b"\n".join(lines))
    draft = Draft(str(dst))
    with bounded():
        draft.read()
        draft.read_links()


@given(data=json_like(STAMPS))
def test_stamps(dst: Path, data: bytes) -> None:
    Path(stamps.path_of(str(dst))).write_bytes(data)
    with bounded():
        stamps.read(str(dst), ledger.Ledger("c" * 64, {}, "xxh3", ()))
        stamps.unmoved(str(dst), "c" * 64)


@given(data=json_like(OWNER))
def test_an_owner(dst: Path, data: bytes) -> None:
    Path(ownership.path_of(str(dst))).write_bytes(data)
    with bounded():
        ownership.read(str(dst))


@given(data=json_like(INDEX))
def test_the_index_of_staged_folders(dst: Path, data: bytes) -> None:
    path = Path(index.path_of(str(dst), "/srv/x"))
    path.write_bytes(data)
    with bounded():
        index.entries(str(dst))


@given(data=damaged(Part("/", "deep/a.bin", Shape(5), {"kind": "file"}, "xxh3_64")._header + bytes(range(8))))
def test_the_list_of_a_part(dst: Path, data: bytes) -> None:
    stem = part.stem("deep/a.bin")
    (dst / f".sparkbuild/{stem}.part").touch()
    (dst / f".sparkbuild/{stem}.chunks").write_bytes(data)
    with bounded():
        begun = Part(str(dst), "deep/a.bin", Shape(5), {"kind": "file"}, "xxh3_64")
        assert begun.lacking() in {0, 5}
        begun.empty()
