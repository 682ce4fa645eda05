"""Damage in a zip, whatever its members are packed with, is told as damage of that archive."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sparkbuild.agent.image import wheels
from sparkbuild.agent.image.layer import Layer
from sparkbuild.agent.source import zipped
from sparkbuild.agent.wire.protocol import AgentError

METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bz2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


@pytest.fixture(params=METHODS)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An archive whose one member has a stream that is none."""
    path = tmp_path / "x-1-py3-none-any.whl"
    name = "x-1.data/scripts/run"
    with zipfile.ZipFile(path, "w", METHODS[request.param]) as archive:
        archive.writestr(name, b"#!python\n" + bytes(range(256)) * 40)
        start = archive.getinfo(name).header_offset + 30 + len(name)
        size = archive.getinfo(name).compress_size
    data = bytearray(path.read_bytes())
    data[start + 9 : start + size] = b"\xff" * (size - 9)  # behind the properties that lzma begins with
    path.write_bytes(data)
    return path


def test_a_member_to_stage_from(damaged: Path) -> None:
    archive = zipped.Archive(str(damaged))
    member = archive.member("x-1.data/scripts/run")
    with pytest.raises(AgentError) as caught:
        member.read(memoryview(bytearray(member.size)), 0)
    assert caught.value.fields["kind"] == "integrity"
    member.close()
    archive.close()


def test_a_wheel(damaged: Path) -> None:
    with pytest.raises(AgentError) as caught:
        wheels._add_wheel(Layer(), str(damaged), "3.11")
    assert "it is no whole wheel" in caught.value.fields["what"]
