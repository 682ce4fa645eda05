"""Kind folder: which files of a plain folder are wanted, and what is refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.disk.globs import matching
from sparkbuild.agent.source import plainfolder
from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.plan import of_what
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import Answer, call, key


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with a file at each of three depths, and what staging keeps for itself."""
    folder = tmp_path / "nas" / "model"
    for name in (
        "config.json",
        "weights/a.bin",
        "weights/deep/b.bin",
        ".sparkbuild/ledger.json",
        "weights/.sparkbuild/x",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 10)
    return folder


def planned(path: Path, dst: str = "", **more: Any) -> FileSet:
    what = {"kind": "folder", "path": str(path), "members": [], "skip": [], **more}
    return of_what(what, "/", dst, Archives())


def names(path: Path, *members: str, skip: tuple[str, ...] = ()) -> list[str]:
    return [item.name for item in planned(path, members=list(members), skip=list(skip)).files]


def refused(path: Path, **more: Any) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        planned(path, **more)
    assert caught.value.fields["kind"] == "config"
    return caught.value.fields


def stage(top: Path, dst: Path, **more: Any) -> Answer:
    what = {"kind": "folder", "path": str(top), "members": [], "skip": [], **more}
    return call("stage", {"store": "/", "dst": str(dst), "key": key(), "parts": {}, "what": what})


ALL = ["config.json", "weights/a.bin", "weights/deep/b.bin"]


def test_members_and_skip(top: Path) -> None:
    assert names(top) == ALL
    assert names(top, "**") == ALL
    assert names(top, "weights/**") == ALL[1:]
    assert names(top, "*.json", "**/b.bin") == [ALL[0], ALL[2]]
    assert names(top, skip=("weights/deep/", "no")) == ALL[:2]
    about = planned(top, members=["*.bin"], skip=["*/deep/*"]).about
    assert about == {"files": 1, "bytes": 130, "skipped": {"files": 2}}


@pytest.mark.parametrize(
    ("path", "glob", "matches"),
    [
        ("a/b/c.pt", "*.pt", True),
        ("a/b/c.pt", "a/**", True),
        ("a/b/c.pt", "a/", True),
        ("a", "a/", False),
        ("ab/c", "a/", False),
        ("x", "**/x", True),
        ("a/x", "**/x", True),
        ("A.PT", "*.pt", False),
        ("a/b", "a", False),
    ],
)
def test_globs(path: str, glob: str, matches: bool) -> None:
    assert bool(matching(path, [glob])) is matches


def test_staged_by_the_agent(top: Path, tmp_path: Path) -> None:
    (top / "weights/link.bin").symlink_to("deep/b.bin")
    answer = stage(top, tmp_path / "dst")
    assert answer.code == 0, answer.events
    assert (tmp_path / "dst/weights/link.bin").read_bytes() == (top / "weights/deep/b.bin").read_bytes()
    assert not (tmp_path / "dst/weights/link.bin").is_symlink()
    assert not (tmp_path / "dst/weights/.sparkbuild").exists()
    assert stage(top, tmp_path / "dst").last["bytes"] == 0


def test_stale_mtime(top: Path, tmp_path: Path) -> None:
    """The source was changed at the same size, and its mtime set back."""
    stage(top, tmp_path / "dst")
    before = (top / "config.json").stat()
    (top / "config.json").write_bytes(b"?" * before.st_size)
    os.utime(top / "config.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stage(top, tmp_path / "dst").last["copied"] == 1
    assert (tmp_path / "dst/config.json").read_bytes() == b"?" * before.st_size


def test_links_are_followed_hop_by_hop(top: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(b"outside")
    (top / "hop").symlink_to("../../outside.bin")
    (top / "first").symlink_to("weights/../hop")
    found = planned(top)
    sources = {item.name: item.source["path"] for item in found.files}
    assert sources["first"] == sources["hop"] == f"{tmp_path}/outside.bin"
    assert found.about["outside"] == dict.fromkeys(("first", "hop"), f"{tmp_path}/outside.bin")


def test_a_snapshot_reached_by_a_link(tmp_path: Path) -> None:
    """Links in it are relative to where the snapshot is, not to the link that leads there."""
    snapshot = tmp_path / "hub/models--a--b/snapshots/1234"
    snapshot.mkdir(parents=True)
    (tmp_path / "hub/models--a--b/blobs").mkdir()
    (tmp_path / "hub/models--a--b/blobs/beef").write_bytes(b"beef")
    (snapshot / "config.json").symlink_to("../../blobs/beef")
    (tmp_path / "model").symlink_to(snapshot)
    item = planned(tmp_path / "model").files[0]
    assert (item.name, item.size) == ("config.json", 4)


def test_links_to_nothing(top: Path) -> None:
    (top / "a").symlink_to("b")
    (top / "b").symlink_to("gone")
    said = refused(top)
    assert said["what"] == "a link in the folder leads to nothing"
    assert (said["where"], said["found"]) == (f"{top}/a", f"{top}/a -> b; {top}/b -> gone; {top}/gone is not there")
    assert names(top, skip=("a", "b")) == ALL
    (top / "gone").symlink_to("a")
    assert "in a circle" in refused(top)["what"]


def test_two_shards_that_are_one_file(top: Path) -> None:
    one, other = (f"weights/m-0000{number}-of-00002.gguf" for number in (1, 2))
    (top / one).write_bytes(b"shard")
    (top / other).symlink_to("m-00001-of-00002.gguf")
    said = refused(top)
    assert said["what"] == "two files of one sharded set are the same file"
    assert said["found"] == f"{one} and {other} -> {top}/{one}"
    assert names(top, skip=(other,)) == sorted([*ALL, one])
    (top / other).unlink()
    (top / other).write_bytes(b"shard")
    assert len(names(top)) == 5


def test_what_is_no_file(top: Path) -> None:
    (top / "weights.link").symlink_to("weights")
    said = refused(top)
    assert (said["where"], said["found"]) == (f"{top}/weights.link", f"a link to {top}/weights, which is a folder")
    assert said["next"].startswith("put weights.link into `skip`")
    assert names(top, skip=("*.link",)) == ALL
    os.mkfifo(top / "pipe.link")
    assert refused(top, skip=["weights.link"])["where"] == f"{top}/pipe.link"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(top / "s.link"))
        assert refused(top, members=["s.link"])["found"] == "a socket, a pipe or a device"


def test_a_skip_that_matches_nothing_is_named(top: Path) -> None:
    assert "unused_skip" not in planned(top).about
    assert planned(top, skip=["*.pth", "*.json"]).about["unused_skip"] == ["*.pth"]


def test_names_that_cannot_be_staged(top: Path) -> None:
    (top / "line\nbreak").touch()
    assert refused(top)["found"] == r"'line\nbreak'"
    assert names(top, skip=("line*",)) == ALL
    (top / "line\nbreak").rename(top / "back\\slash")
    said = refused(top)
    assert said["found"] == repr("back\\slash")
    assert "printable characters but the backslash" in said["wanted"]


CHANGES = {
    "gone": ("os.unlink({top!r} + '/weights/deep/b.bin')", "weights/deep/b.bin is gone"),
    "new": ("open({top!r} + '/new.bin', 'w').close()", "new.bin is new"),
    "another": ("open({top!r} + '/config.json', 'a').write('x')", "config.json is another now"),
    "many": (
        "os.unlink({top!r} + '/config.json'), [open({top!r} + f'/new{{n}}', 'w').close() for n in range(4)]",
        "config.json is gone, new0 is new, new1 is new, and 2 more",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_changed_in_the_source_meanwhile(top: Path, tmp_path: Path, kind: str) -> None:
    change, told = CHANGES[kind]
    shim = (
        "import os\nfrom sparkbuild.agent.ledger import links\nreal = links.make\n"
        f"def make(*args):\n    {change.format(top=str(top))}\n    return real(*args)\nlinks.make = make"
    )
    what = {"kind": "folder", "path": str(top), "members": [], "skip": []}
    request = {"store": "/", "dst": str(tmp_path / "dst"), "key": key(), "parts": {}, "what": what}
    answer = call("stage", request, shim=shim)
    assert answer.last["what"] == "the source was changed while it was being staged"
    assert answer.last["found"] == told


def test_nothing_matches(top: Path) -> None:
    said = refused(top, members=["*.json", "*.gguf"])
    assert said["what"] == "nothing in the folder matches '*.gguf'"
    assert said["found"] == f"3 files: {', '.join(ALL)}"
    assert refused(top, skip=["*"])["what"] == "all of the folder is skipped"
    assert refused(top.parent / "none")["what"] == "the folder to stage from is not there"
    (top.parent / "empty").mkdir()
    said = refused(top.parent / "empty", members=["*.gguf"])
    assert (said["what"], said["found"]) == ("the folder to stage from is empty", "an empty folder")
    assert said["next"].startswith(f"is it mounted? on that node, findmnt -T {top.parent}/empty tells")


def test_src_is_dst(top: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(top)
    for dst in (top, tmp_path / "link", top / "weights", top / "new/deeper", top.parent, tmp_path / "link/new"):
        assert refused(top, dst=str(dst))["what"] == "a folder cannot be staged into itself", dst
    assert refused(tmp_path / "link", dst=str(top))["found"] == f"the same folder as {tmp_path}/link"
    assert stage(top, tmp_path / "link").last["what"] == "a folder cannot be staged into itself"
    assert not (top / ".sparkbuild/lock").exists()
    for dst in (tmp_path / "dst", top.parent / "beside", top.parent / "model2/x"):
        assert len(planned(top, dst=str(dst)).files) == 3


def test_a_file_is_no_folder_to_stage_from(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    what = {"kind": "folder", "path": str(tmp_path / "a.bin"), "members": [], "skip": []}
    with pytest.raises(AgentError) as caught:
        plainfolder.file_set(what, "/")
    assert caught.value.fields["what"] == "what is to be staged from is no folder"
    assert f'{tmp_path}, as `src`, with members = ["a.bin"]' in caught.value.fields["next"]


def test_a_folder_that_is_not_there_says_how_far_it_is(tmp_path: Path) -> None:
    what = {"kind": "folder", "path": str(tmp_path / "nas/models"), "members": [], "skip": []}
    with pytest.raises(AgentError) as caught:
        plainfolder.file_set(what, "/")
    assert caught.value.fields["found"] == f"{tmp_path} is the last of it that is there"
    assert "mounted" in caught.value.fields["next"]
