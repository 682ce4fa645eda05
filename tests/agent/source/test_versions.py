"""A source that changes while it is read, or between two runs: no file is ever made of two versions of it."""

from __future__ import annotations

import errno
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.source import versions
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.source.versions import Version
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import CHUNK, call, entry, key, list_of, look_here, problems
from tests.staging.checkpoint import make as make_model
from tests.staging.hubcache import COMMIT, REAL, REPO, HubCache

# At the nth big read of the source something is done to it.
AT = """
import os
import time
plain, calls = os.preadv, 0
def preadv(fd, *args):
    global calls
    if len(args[0][0]) >= 1 << 16 and os.readlink(f"/proc/self/fd/{{fd}}").startswith({path!r}):
        calls += 1
        if calls == {nth}:
            {then}
    return plain(fd, *args)
os.preadv = preadv
"""
# The content in place, with the mtime that it had.
OVERWRITE = """found = os.stat({path!r})
            with open({path!r}, "r+b") as file:
                file.seek({offset})
                file.write(os.urandom({size}))
            os.utime({path!r}, ns=(found.st_atime_ns, found.st_mtime_ns))"""
SIZE = 6 * CHUNK
NAME = "weights.pt"


class Made:
    """A source without a digest: `path` is its file, `request` stages it, `staged` is what comes of it."""

    def __init__(self, kind: str, root: Path) -> None:
        self.dst = root / "srv/staged"
        what: dict[str, Any]
        if kind == "folder":
            self.path = root / "nas/model" / NAME
            self.path.parent.mkdir(parents=True)
            self.path.write_bytes(os.urandom(SIZE))
            what, name = {"kind": "folder", "path": str(self.path.parent), "members": [], "skip": []}, NAME
        elif kind == "hub-mirror":
            cache = HubCache(root / "nas/hub")
            cache.add(NAME, os.urandom(SIZE), REAL)
            cache.ref()
            self.path = cache.snapshot / NAME
            what = {"kind": "hub-mirror", "cache": str(cache.root), "repo": REPO, "revision": "main", "skip": []}
            name = f"snapshots/{COMMIT}/{NAME}"
        elif kind == "zip-member":
            self.path = root / "nas/model.zip"
            self.path.parent.mkdir(parents=True)
            with zipfile.ZipFile(self.path, "w") as archive:
                archive.writestr(NAME, os.urandom(SIZE))
            what, name = {"kind": "artifact", "archive": str(self.path), "members": ["*"]}, NAME
        else:
            made = make_model(root / "nas/m", vocab=4000, as_hub_cache=kind.endswith("of a hub"))
            layout = kind.partition(" ")[0]
            what = {"kind": layout, "model": str(made.folder), "layers": [1], "split": "heads", "tp": 2, "rank": 1}
            self.path = (made.folder / made.files[1]).resolve()
            name = made.files[1] if layout == "sparse-copy" else "engram-l1-r1of2.bin"
        self.request = {"store": "/", "dst": str(self.dst), "key": key(), "parts": {}, "what": what}
        self.staged = self.dst / name


PLAIN = ["folder", "hub-mirror"]
KINDS = [*PLAIN, "zip-member", "packed", "packed of a hub", "sparse-copy", "sparse-copy of a hub"]


@pytest.mark.parametrize("kind", KINDS)
def test_overwritten_in_place_while_it_is_read(tmp_path: Path, kind: str) -> None:
    """Only the ctime tells. What was read of it is thrown away, and gets no name."""
    made = Made(kind, tmp_path)
    then = OVERWRITE.format(path=str(made.path), offset=made.path.stat().st_size // 2, size=9)
    answer = call("stage", made.request, shim=AT.format(path=str(made.path), nth=3, then=then))
    assert (answer.code, answer.last["kind"]) == (1, "integrity"), answer.events
    assert not made.staged.exists()
    assert call("stage", made.request).code == 0 or kind == "zip-member"  # whose CRC is wrong now
    assert made.staged.exists() or kind == "zip-member"
    if kind in PLAIN:
        assert made.staged.read_bytes() == made.path.read_bytes()


STOP = """
import errno, os
plain, calls = os.preadv, 0
def preadv(fd, *args):
    global calls
    if len(args[0][0]) >= 1 << 16 and os.readlink(f"/proc/self/fd/{{fd}}").startswith({path!r}):
        calls += 1
        if calls > {nth}:
            os._exit(9)
    return plain(fd, *args)
os.preadv = preadv
"""


@pytest.mark.parametrize("how", ["replaced", "overwritten"])
@pytest.mark.parametrize("kind", ["folder", "hub-mirror", "packed of a hub", "sparse-copy of a hub"])
def test_replaced_between_a_kill_and_the_next_run(tmp_path: Path, kind: str, how: str) -> None:
    """With the same size and mtime: no chunk of before is gone on with."""
    made = Made(kind, tmp_path)
    shim = STOP.format(path=str(made.path), nth=4)
    assert call("stage", made.request, shim=shim).code == 9
    parts = list(made.staged.parent.rglob("*.chunks")) + list(made.dst.glob(".sparkbuild/*.chunks"))
    assert parts, "it was killed in the middle"
    found, data = made.path.stat(), bytearray(made.path.read_bytes())
    half = len(data) // 2
    data[half : half + CHUNK] = os.urandom(len(data[half : half + CHUNK]))
    place = made.path if how == "overwritten" else made.path.with_name("new")
    with place.open("r+b" if how == "overwritten" else "wb") as file:
        file.write(data)
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))
    os.rename(place, made.path)
    answer = call("stage", made.request)
    assert answer.code == 0, answer.events
    assert answer.last["read"] >= answer.last["total"] - 4096, "all of it was read again"
    assert problems(look_here(made.dst, full=True)) == []
    if kind in PLAIN:
        assert made.staged.read_bytes() == bytes(data)


def test_what_was_made_of_a_source_that_changed_later_goes(tmp_path: Path) -> None:
    """One file changes when it is copied already, while another one is being read."""
    folder = tmp_path / "nas"
    folder.mkdir()
    (folder / "a.pt").write_bytes(os.urandom(1000))
    (folder / "b.pt").write_bytes(os.urandom(SIZE))
    dst = tmp_path / "srv/staged"
    what = {"kind": "folder", "path": str(folder), "members": [], "skip": []}
    request = {"store": "/", "dst": str(dst), "key": key(), "parts": {}, "what": what, "streams": 1}
    then = OVERWRITE.format(path=str(folder / "a.pt"), offset=5, size=9)
    answer = call("stage", request, shim=AT.format(path=str(folder / "b.pt"), nth=4, then=then))
    assert answer.code == 1
    assert "a.pt is another now" in answer.last["found"]
    assert not (dst / "a.pt").exists()
    assert (dst / "b.pt").read_bytes() == (folder / "b.pt").read_bytes()
    again = call("stage", request).last
    assert again["copied"] == 1
    assert (dst / "a.pt").read_bytes() == (folder / "a.pt").read_bytes()


def test_a_version_is_five_things(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    found = versions.of(path.stat())
    assert found[1:] == (path.stat().st_ino, 7, path.stat().st_mtime_ns, path.stat().st_ctime_ns)
    assert versions.parsed(found.text) == found
    for field in Version._fields:
        other = found._replace(**{field: "ext4 /dev/sdz9" if field == "device" else 1})
        assert other != found
        now, before = versions.told(other, found)
        assert now != before, field
        with pytest.raises(AgentError, match="not the one it was") as caught:
            FileSource(str(path), other.text)
        assert caught.value.fields["kind"] == "integrity"


def test_a_new_link_to_it_is_told_as_what_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    source = FileSource(str(path))
    os.link(path, tmp_path / "b")
    with pytest.raises(AgentError) as caught:
        source.check()
    source.close()
    assert "or linked" in caught.value.fields["found"]


@pytest.mark.parametrize("name", ["ETIMEDOUT", "ENOTCONN", "EACCES", "EIO", "ESTALE", "EHOSTDOWN", "EKEYEXPIRED"])
@pytest.mark.parametrize("streams", [1, 4])
def test_trouble_of_the_source_is_the_sources(tmp_path: Path, dst: Path, name: str, streams: int) -> None:
    source = tmp_path / "nas.pt"
    source.write_bytes(os.urandom(SIZE))
    shim = AT.format(path=str(source), nth=4, then="pass") + (
        f"\nimport errno\nreads = os.preadv\ndef failing(fd, *args):\n    got = reads(fd, *args)\n"
        f"    if calls >= 4 and os.readlink(f'/proc/self/fd/{{fd}}') == {str(source)!r}:\n"
        f"        raise OSError(errno.{name}, os.strerror(errno.{name}))\n    return got\nos.preadv = failing\n"
        "import sparkbuild.agent.disk.nas as nas\nnas.PAUSES = (0.01, 0.01)\n"
    )
    answer = call("stage", list_of(dst, [entry("a.pt", source)], streams=streams), shim=shim)
    said = answer.last
    assert (answer.code, said["kind"], said["where"]) == (1, "node", str(source)), said
    assert ".part" not in json.dumps(said)
    assert os.strerror(getattr(errno, name)) in said["what"] + said["found"]


def test_a_name_that_goes_while_a_file_of_two_is_read(tmp_path: Path) -> None:
    """Two files of a folder that are one: while one is read to be a file of its own, the other is replaced."""
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"a" * 5000)
    other.hardlink_to(path)
    strict, linked = FileSource(str(path)), FileSource(str(path), linked=True)
    time.sleep(0.02)  # a tick of the clock of times of files
    other.unlink()
    with pytest.raises(AgentError, match="changed while it was being read"):
        strict.check()
    linked.check()
    linked.again().close()
    path.write_bytes(b"b" * 5000)
    with pytest.raises(AgentError, match="changed while it was being read"):
        linked.check()
    strict.close()
    linked.close()
