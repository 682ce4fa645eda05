"""Identities that earlier releases wrote are known, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.agent.ledger.digest import CHUNK, best
from sparkbuild.agent.ledger.identity import forms
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.ledger.shape import Shape

NOW = {"kind": "folder-file", "path": "a b.bin", "version": "77 1000 5 6 nfs4 10.0.0.9:/models"}
BEFORE = {"kind": "folder-file", "path": "a b.bin", "size": 1000, "mtime_ns": 5, "ctime_ns": 6}


def test_a_version_was_size_and_times() -> None:
    assert tuple(forms(NOW)) == (NOW, BEFORE)
    assert tuple(forms({**NOW, "version": "77 1000 5 7 "}))[1] != BEFORE


@pytest.mark.parametrize("version", ["", "77", "a b c d e", 7, None, "1 2 3"])
def test_what_is_no_version_has_one_form(version: object) -> None:
    assert tuple(forms({"kind": "x", "version": version})) == ({"kind": "x", "version": version},)
    assert tuple(forms({})) == ({},)


@pytest.mark.parametrize(("kept", "resumed"), [(NOW, True), (BEFORE, True), ({**BEFORE, "ctime_ns": 7}, False)])
def test_a_part_goes_on_with_the_head_that_it_has(tmp_path: Path, kept: dict[str, object], *, resumed: bool) -> None:
    (tmp_path / ".sparkbuild").mkdir()
    shape = Shape(3 * CHUNK)
    begun = Part(str(tmp_path), "a b.bin", shape, kept, best())
    with begun.opened():
        begun.note(0, b"8 bytes.")
    part = Part(str(tmp_path), "a b.bin", shape, NOW, best())
    assert part.resumable == resumed
    assert part.lacking() == (2 if resumed else 3) * CHUNK
    with part.opened():
        part.note(1, b"8 more .")
    source = kept if resumed else NOW
    again = Part(str(tmp_path), "a b.bin", shape, source, best())
    assert again.known(1) == b"8 more .", "its head is still the one that it was begun with"
