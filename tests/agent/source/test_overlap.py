"""A source that is its own target, by a link, a mount or a hard link: refused, and there byte for byte afterwards."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import call, flip, key, stage_here
from tests.staging.checkpoint import COMMIT, REPO, Checkpoint, make

WHAT = "a folder cannot be staged into itself"
KINDS = ["packed", "page15", "sparse-copy", "complete", "folder", "hub-mirror"]
REPOSITORY = f"models--{REPO.replace('/', '--')}"


def what_of(kind: str, src: Path) -> dict[str, Any]:
    if kind == "folder":
        return {"kind": kind, "path": str(src), "members": [], "skip": []}
    if kind == "hub-mirror":
        return {"kind": kind, "cache": str(src), "repo": REPO, "revision": COMMIT, "skip": []}
    rows = {"model": str(src), "layers": [], "split": "even", "tp": 2, "rank": 0}
    return {**rows, "kind": "sparse-copy" if kind == "complete" else kind, "complete_shard": kind == "complete"}


def request(what: dict[str, Any], dst: Path, **more: Any) -> dict[str, Any]:
    return {"store": "/", "dst": str(dst), "key": key(), "parts": {}, "what": what, **more}


def content(top: Path) -> dict[str, str]:
    """Every path below, what it is, and of a file what is in it; not of our lock, which says when it was taken."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif name.endswith(".sparkbuild/lock"):
            found[name] = "a lock"
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "a folder"
    return found


def refused(what: dict[str, Any], dst: Path, source: Path) -> dict[str, Any]:
    """By a plan and by a run, and the source is as it was."""
    before = content(source)
    planned = call("verify", request(what, dst)).last["refused"]
    assert (planned["what"], planned["kind"], planned["part"]) == (WHAT, "config", "source"), planned
    for more in ({}, {"full": True}, {"verify": "full"}):
        said = call("stage", request(what, dst, **more)).last
        assert (said["what"], said["kind"]) == (WHAT, "config"), said
        assert all(said[field] for field in ("where", "found", "wanted", "next"))
    assert content(source) == before
    return said


@pytest.fixture
def made(tmp_path: Path) -> Checkpoint:
    return make(tmp_path / "m", as_hub_cache=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make(tmp_path / "hub", as_hub_cache=True).cache


def source_of(kind: str, made: Checkpoint, cache: Path) -> tuple[Path, str]:
    """The folder to stage from, and what of it the staging of that kind would be into."""
    return (cache, REPOSITORY) if kind == "hub-mirror" else (made.folder, "")


@pytest.mark.parametrize("kind", KINDS)
def test_by_links(kind: str, made: Checkpoint, cache: Path, tmp_path: Path) -> None:
    source, inner = source_of(kind, made, cache)
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "up").symlink_to(tmp_path)
    for other in (tmp_path / "link", tmp_path / "up" / source.name):  # in the last and in a middle step
        assert refused(what_of(kind, other), source / inner, source)["where"] == str(source / inner)
        refused(what_of(kind, source), other / inner, source)
        refused(what_of(kind, source), other / "inside/deeper", source)  # which is not there
    (source / "there").mkdir()
    refused(what_of(kind, source), tmp_path / "link" / "there", source)
    assert not (source / ".sparkbuild").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_src_inside_dst(kind: str, made: Checkpoint, cache: Path, tmp_path: Path) -> None:
    source, _ = source_of(kind, made, cache)
    (tmp_path / "up").symlink_to(tmp_path)
    refused(what_of(kind, source), tmp_path / "up", source)
    refused(what_of(kind, tmp_path / "up" / source.name), tmp_path, source)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Any]:
    """Makes bind mounts, and takes them away."""
    if os.geteuid() != 0:
        pytest.skip("a bind mount needs root")
    mounts = []

    def bind(source: Path, name: str) -> Path:
        place = tmp_path / name
        place.mkdir(parents=True)
        done = subprocess.run(["mount", "--bind", source, place], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no bind mount here: {done.stderr.strip()}")
        mounts.append(place)
        return place

    yield bind
    for place in reversed(mounts):
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_by_bind_mounts(kind: str, made: Checkpoint, cache: Path, bound: Any) -> None:
    source, inner = source_of(kind, made, cache)
    other = bound(source, "bound here")  # mountinfo writes the space in its own way
    refused(what_of(kind, other), source / inner, source)
    refused(what_of(kind, source), other / inner, source)
    refused(what_of(kind, source), other / "inside", source)
    (source / "there").mkdir()
    deeper = bound(source / "there", "deeper")  # the way up from here never meets the source
    refused(what_of(kind, source), deeper, source)
    refused(what_of(kind, source), deeper / "new", source)
    assert not (source / ".sparkbuild").exists()


def test_blobs_of_the_source_in_a_mirror(cache: Path, tmp_path: Path, bound: Any) -> None:
    blobs = cache / REPOSITORY / "blobs"
    bound(blobs, f"node/{REPOSITORY}/blobs")
    refused(what_of("hub-mirror", cache), tmp_path / "node" / REPOSITORY, cache)
    refused(what_of("complete", cache / REPOSITORY / "snapshots" / COMMIT), blobs, cache)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_links_of_the_source_lead_into_dst(kind: str, made: Checkpoint, tmp_path: Path) -> None:
    """The usual snapshot: its files are links, and what they lead to lies in `dst`."""
    links = tmp_path / "links"
    links.mkdir()
    for path in made.folder.iterdir():
        (links / path.name).symlink_to(path)
    refused(what_of(kind, links), made.folder, tmp_path)
    (tmp_path / "again").symlink_to(made.folder)
    refused(what_of(kind, links), tmp_path / "again", tmp_path)


def test_a_folder_beside_is_none(made: Checkpoint, tmp_path: Path, bound: Any) -> None:
    other = bound(made.folder, "nas")
    (tmp_path / "m2").mkdir()
    for dst in (tmp_path / "m2", tmp_path / "m3/deep"):
        assert call("stage", request(what_of("packed", other), dst)).last["copied"] == 2


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders cannot be told from one another: as by two mounts of a NAS that has no ids for them."""
    monkeypatch.setattr("sparkbuild.agent.source.overlap.refuse", lambda *_: None)
    monkeypatch.setattr("sparkbuild.agent.source.overlap.refuse_files", lambda *_: None)


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("kind", ["complete", "folder"])
def test_the_last_guard(kind: str, made: Checkpoint, tmp_path: Path) -> None:
    """What is read from is never adopted, mended, replaced or removed, whatever folders seem to be."""
    (tmp_path / "link").symlink_to(made.folder)
    before = content(made.folder)
    for more in ({}, {"full": True}, {"verify": "full"}):
        with pytest.raises(AgentError) as caught:
            stage_here(request({**what_of(kind, tmp_path / "link"), "tp": 1}, made.folder, **more))
        assert (caught.value.fields["what"], caught.value.fields["kind"]) == (WHAT, "config")
        assert content(made.folder) == before


@pytest.mark.usefixtures("blind")
def test_the_last_guard_of_a_damaged_file(tmp_path: Path) -> None:
    """Staged once from elsewhere; then the source becomes a link to what was staged, which is damaged after that."""
    source, dst, link = tmp_path / "source", tmp_path / "dst", tmp_path / "link"
    source.mkdir()
    (source / "a.bin").write_bytes(os.urandom(9 << 20))
    listed = {"name": "a.bin", "size": 9 << 20, "sha256": hashlib.sha256((source / "a.bin").read_bytes()).hexdigest()}
    link.symlink_to(source)
    what = {"kind": "list", "files": [{**listed, "source": {"kind": "file", "path": str(link / "a.bin")}}]}
    stage_here(request(what, dst))
    link.unlink()
    link.symlink_to(dst)
    flip(dst / "a.bin", 5 << 20)
    before = content(dst)
    with pytest.raises(AgentError) as caught:
        stage_here(request(what, dst, full=True))
    assert caught.value.fields["what"] == WHAT
    assert content(dst) == before
    gone = {"kind": "list", "files": [{**what["files"][0], "name": "b.bin"}]}  # its source would go
    with pytest.raises(AgentError) as caught:
        stage_here(request(gone, dst))
    assert caught.value.fields["what"] == WHAT
    assert content(dst) == before


@pytest.mark.parametrize("linked", [False, True])
def test_a_hard_link_of_its_source(tmp_path: Path, *, linked: bool) -> None:
    """It gets a copy of its own, whether or not its name may have others, and the source is never written."""
    source, dst = tmp_path / "source", tmp_path / "dst"
    source.mkdir()
    dst.mkdir()
    data = os.urandom(9 << 20)
    (source / "a.bin").write_bytes(data)
    os.link(source / "a.bin", dst / "a.bin")
    what = {**what_of("folder", source), "members": ["a.bin"]}
    assert "event" in call("stage", request(what, dst, linked=linked)).last
    assert (source / "a.bin").read_bytes() == (dst / "a.bin").read_bytes() == data
    assert not os.path.samefile(source / "a.bin", dst / "a.bin")
    flip(dst / "a.bin", 5 << 20)
    call("stage", request(what, dst, linked=linked, full=True))
    assert (source / "a.bin").read_bytes() == (dst / "a.bin").read_bytes() == data
