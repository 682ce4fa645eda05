"""The ledger is read as if somebody had written it to do harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import ledger
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Ledger, LedgerError, Record
from tests.agent.driver import look

RECORD = Record("a/b.bin", 5, "c" * 64, b"12345678", "xxh3_64", {"kind": "file", "of": "x"})
BIG = Record("big", 200_000, "e" * 64, b"12345678", "xxh3_64", {}, ((0, 70_000), (90_000, 200_000)), b"headtail" * 4)


def good() -> dict[str, Any]:
    files = [{"name": "a.bin", "size": 5, "sha256": "c" * 64, "chunks": "MTIzNDU2Nzg=", "source": {}}]
    head = {"format": "sparkbuild-ledger", "version": 2, "key": "a" * 64, "parts": {}, "digest": "xxh3_64"}
    return {**head, "chunk": 4 << 20, "at": 1.5, "files": files}


def test_round_trip(tmp_path: Path) -> None:
    (tmp_path / ".sparkbuild").mkdir()
    written = ledger.write(str(tmp_path), Ledger("a" * 64, {"kind": "files"}, "xxh3_64", (RECORD, BIG)))
    read = ledger.read(str(tmp_path))
    assert read == written
    assert read is not None
    assert read.files == (RECORD, BIG)
    assert read.total == 180_005
    assert os.listdir(tmp_path / ".sparkbuild") == ["ledger.json"]


def change(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: value.update(fields)


def in_file(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: value["files"][0].update(fields)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (change(format="other"), "not a sparkbuild ledger"),
        (change(version=3), "version 3"),
        (change(chunk=0), "version 2"),
        (change(key=None), "missing"),
        (change(parts=[]), "missing"),
        (change(files={}), "missing"),
        (change(files=["x"]), "no object"),
        (lambda value: value["files"].append(value["files"][0]), "twice"),
        (in_file(name="../a.bin"), "not inside the folder"),
        (in_file(name="/etc/passwd"), "not inside the folder"),
        (in_file(name="x/../../y"), "not inside the folder"),
        (in_file(name=".sparkbuild/ledger.json"), "not inside the folder"),
        (in_file(name="x\udc80"), "not inside the folder"),
        (in_file(name="x\x00y"), "not inside the folder"),
        (in_file(name="y" * 256), "not inside the folder"),
        (in_file(name=""), "not inside the folder"),
        (in_file(name=7), "not inside the folder"),
        (in_file(size=-1), "size"),
        (in_file(size=True), "size"),
        (in_file(size=10**30), "size"),
        (in_file(size=1 << 40), "wants 262144"),
        (in_file(size="5"), "size"),
        (in_file(sha256="C" * 64), "sha256"),
        (in_file(sha256=None), "sha256"),
        (in_file(source=None), "source"),
        (in_file(chunks="MTIzNDU2Nzg"), "damaged"),
        (in_file(ends="MTIzNDU2Nzg"), "damaged"),
        (in_file(ends="MTIzNA=="), "ends of a.bin are damaged"),
        (in_file(chunks=["MTIzNDU2Nzg="]), "0 chunk digests"),
        (in_file(chunks=""), "0 chunk digests"),
    ],
)
def test_damage_is_named(damage: Callable[[dict[str, Any]], None], text: str) -> None:
    value = good()
    assert ledger.parse(json.dumps(value).encode()).files[0].name == "a.bin"
    damage(value)
    with pytest.raises(LedgerError, match=text):
        ledger.parse(json.dumps(value).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 200_000, b'{"format":' + b"9" * 5000 + b"}", b"\x00" * 4096],
    ids=["empty", "cut", "list", "null", "binary", "deep", "long number", "zeros"],
)
def test_what_is_no_ledger_gives_a_reason_and_no_crash(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".sparkbuild").mkdir()
    (tmp_path / ".sparkbuild/ledger.json").write_bytes(data)
    fact = look(tmp_path)
    assert fact["present"] is False
    assert fact["problem"].startswith(f"the ledger in {tmp_path} is unreadable: ")


def test_every_truncation_is_unreadable() -> None:
    data = json.dumps(good()).encode()
    for end in range(len(data)):
        with pytest.raises(LedgerError):
            ledger.parse(data[:end])


def test_huge_link_and_pipe_are_refused(tmp_path: Path) -> None:
    ours = tmp_path / ".sparkbuild"
    ours.mkdir()
    path = ours / "ledger.json"
    with path.open("wb") as file:
        file.truncate(ledger.LIMIT + 1)
    assert "more than" in look(tmp_path)["problem"]
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "symbolic link" in look(tmp_path)["problem"]
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in look(tmp_path)["problem"]
    path.unlink()
    path.mkdir()
    assert "no regular file" in look(tmp_path)["problem"]


def test_draft_keeps_what_is_whole(tmp_path: Path) -> None:
    (tmp_path / ".sparkbuild").mkdir()
    draft = Draft(str(tmp_path))
    assert draft.read() == {}
    draft.start([RECORD])
    other = Record("c", 0, "d" * 64, b"", "blake2b_8", {})
    draft.add(other)
    with open(draft.path, "ab") as file:
        file.write(b'{"name": "torn", "si')
    draft.add(RECORD)
    assert draft.read() == {"a/b.bin": RECORD, "c": other}
    draft.end()
    draft.end()
    assert draft.read() == {}
