"""What a rank is given beside its image: the recipe's files in the store, its secrets in memory, and nothing else."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import Answer, call

SECRET = "hf_0123456789abcdef"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def encoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


class Node:
    """A store, and a folder that stands for the memory of the node."""

    def __init__(self, root: Path) -> None:
        self.store = root / "my store"
        self.memory = root / "shm"
        self.memory.mkdir()
        self.shim = f"import sparkbuild.agent.lane.prepare as prepare; prepare.MEMORY = {str(self.memory)!r}"

    def prepare(self, *, umask: str = "022", **changes: Any) -> Answer:
        request = {"store": str(self.store), "recipe": "demo", "launch": "l1", "folder": "files-0123", **changes}
        return call("prepare", request, shim=f"import os; os.umask(0o{umask})\n{self.shim}")

    def prepared(self, **changes: Any) -> dict[str, Any]:
        answer = self.prepare(**changes)
        assert answer.code == 0, answer.events
        assert set(answer.last) == {"event", "files", "secrets"}
        return answer.last

    def stop(self, recipe: str = "demo") -> None:
        request = {"store": str(self.store), "recipe": recipe, "grace": 1}
        assert call("stop", request, shim=self.shim).code == 0

    def everything(self) -> dict[str, bytes]:
        """Every file that there is, but locks, by its path in the store or the memory."""
        found = [path for top in (self.store, self.memory) for path in top.rglob("*") if path.is_file()]
        found = [path for path in found if path.suffix != ".lock"]
        return {str(path.relative_to(self.store.parent)): path.read_bytes() for path in found}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_nothing_to_prepare(node: Node) -> None:
    assert node.prepared() == {"event": "result", "files": "", "secrets": ""}
    assert node.everything() == {}


FILES = {"chat.jinja": b"{{ x }}\r\n\0\xff", "sub/a b.txt": b"", "sub/deep/ü": b"3"}


def test_files(node: Node) -> None:
    found = node.prepared(files=encoded(FILES))
    top = node.store / "lanes/demo/files-0123"
    assert found["files"] == str(top)
    assert {name: (top / name).read_bytes() for name in FILES} == FILES
    assert mode(top / "chat.jinja") == 0o644
    assert len(node.everything()) == 3


def test_files_are_there_for_a_container_of_another_user_whatever_the_umask(node: Node) -> None:
    node.prepared(files=encoded(FILES), umask="077")
    top = node.store / "lanes/demo/files-0123"
    assert {mode(top / name) for name in FILES} == {0o644}
    assert {mode(path) for path in (top, top / "sub", top / "sub/deep")} == {0o755}


def test_files_once_more(node: Node) -> None:
    node.prepared(files=encoded(FILES))
    broken = node.store / "lanes/demo/files-0123/chat.jinja"
    broken.write_bytes(b"half")
    node.prepared(files=encoded(FILES))
    assert broken.read_bytes() == FILES["chat.jinja"]
    assert len(node.everything()) == 3, "no part of a file is left"


def recorded(node: Node, **fields: Any) -> None:
    record = {"format": "sparkbuild-lane/v1", "recipe": "demo", "parts": {}, "runtime": "docker", "container": "c"}
    record |= {"argv": [], "uses": [], **fields}
    (node.store / "lanes/demo/lane.json").write_text(json.dumps(record))


@pytest.mark.parametrize("named", ["uses", "argv"])
def test_other_content_lies_elsewhere_and_what_runs_keeps_its_own(node: Node, named: str) -> None:
    one = node.prepared(files=encoded({"a": b"1"}))["files"]
    recorded(node, **{named: [one if named == "uses" else f"--template={one}/a"]})
    two = node.prepared(files=encoded({"a": b"2"}), folder="files-4567")["files"]
    assert one != two
    assert (Path(one) / "a").read_bytes() == b"1"
    assert (Path(two) / "a").read_bytes() == b"2"


def test_files_that_no_launch_names_any_more_are_removed(node: Node) -> None:
    one = node.prepared(files=encoded({"a": b"1"}))["files"]
    (node.store / "lanes/demo/20260101T000000Z-1.log").write_text("kept")
    recorded(node, uses=["/somewhere/else"])
    two = node.prepared(files=encoded({"a": b"2"}), folder="files-4567")["files"]
    assert not Path(one).exists()
    assert Path(two).is_dir()
    assert (node.store / "lanes/demo/20260101T000000Z-1.log").exists()


def test_what_a_power_cut_left_is_not_shown_to_a_container(node: Node) -> None:
    top = Path(node.prepared(files=encoded(FILES))["files"])
    for left in ("chat.jinja.4711.part", "sub/a b.txt.12.part", "stranger"):
        (top / left).write_text("half")
    node.prepared(files=encoded(FILES))
    assert {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()} == set(FILES)


def test_a_full_memory_is_named_as_what_is_full(node: Node) -> None:
    """The secrets lie in memory: the disk of the store has room, and saying how much of it misleads."""
    full = f"{node.shim}\nimport errno, os\ndef fsync(fd):\n    raise OSError(errno.ENOSPC, 'No space left')\n"
    request = {"store": str(node.store), "recipe": "demo", "launch": "l1", "folder": "files-0123"}
    answer = call("prepare", {**request, "secrets": {"KEY": SECRET}}, shim=f"{full}os.fsync = fsync")
    assert (answer.code, answer.last["kind"]) == (1, "space")
    assert answer.last["where"].startswith(str(node.memory))
    assert SECRET not in str(answer.events)
    assert node.everything() == {}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/sparkbuild-test", "", ".", "..", "a/..", "x\0y"])
def test_files_that_would_lie_elsewhere(node: Node, name: str) -> None:
    answer = node.prepare(files=encoded({name: b"1"}))
    assert answer.code == 1
    assert answer.last["what"] == "a file of the recipe would lie outside of its folder"
    assert node.everything() == {}


NAMES = ["..", ".", "", "../x", "a/b", "/tmp/x", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["recipe", "launch", "folder", "secrets"])
def test_names_that_are_none(node: Node, field: str, name: str) -> None:
    bystander = node.memory / f"sparkbuild-{os.geteuid()}" / "x"
    bystander.parent.mkdir()
    bystander.write_text("of another lane")
    answer = node.prepare(**{"files": encoded({"a": b"1"}), field: {name: SECRET} if field == "secrets" else name})
    assert answer.code == 1
    assert answer.last["what"] == "a name that is none"
    assert SECRET not in str(answer.events)
    assert list(node.everything().values()) == [b"of another lane"]


ODD = {"HF_TOKEN": SECRET, "MULTI": "a\nb\n$x '\"\\", "LETTERS": "ü✓", "NUL": "a\0b", "BYTES": "\udcff\udc80"}


def test_secrets(node: Node) -> None:
    found = node.prepared(secrets=ODD, umask="000")
    top = Path(found["secrets"])
    assert top.is_relative_to(node.memory)
    assert top.name == "l1"
    for name, value in ODD.items():
        assert (top / name).read_bytes() == value.encode(errors="surrogateescape")
        assert mode(top / name) == 0o600
    assert mode(top) == 0o700
    assert mode(node.memory / f"sparkbuild-{os.geteuid()}") == 0o700
    assert [name for name in node.everything() if name.startswith("my store")] == [], "on no disk"


def test_secrets_of_the_next_launch_replace_those_of_the_last(node: Node) -> None:
    before = Path(node.prepared(secrets={"A": "1", "B": "2"})["secrets"])
    after = Path(node.prepared(secrets={"B": "3"}, launch="l2")["secrets"])
    assert not before.exists()
    assert {path.name: path.read_text() for path in after.iterdir()} == {"B": "3"}
    again = Path(node.prepared(secrets={"B": "4"}, launch="l2")["secrets"])
    assert again == after
    assert (again / "B").read_text() == "4"


def test_a_launch_without_secrets_forgets_the_last_one_s(node: Node) -> None:
    node.prepared(secrets={"A": "1"})
    assert node.prepared(launch="l2")["secrets"] == ""
    assert node.everything() == {}


def test_stopping_forgets_them_and_no_other_lane_s(node: Node) -> None:
    node.prepared(secrets={"A": "1"})
    node.prepared(secrets={"A": "2"}, recipe="demo-2x")
    node.stop()
    assert list(node.everything().values()) == [b"2"]
    node.stop("demo-2x")
    assert node.everything() == {}


def test_two_stores_on_one_node_have_secrets_of_their_own(node: Node, tmp_path: Path) -> None:
    one = node.prepared(secrets={"A": "1"})["secrets"]
    two = node.prepared(secrets={"A": "2"}, store=str(tmp_path / "other"))["secrets"]
    assert one != two
    assert Path(one, "A").read_text() == "1"


def test_a_folder_that_others_could_look_into_is_closed(node: Node) -> None:
    top = node.memory / f"sparkbuild-{os.geteuid()}"
    top.mkdir(mode=0o777)
    node.prepared(secrets={"A": "1"})
    assert mode(top) == 0o700


def refused(node: Node) -> str:
    answer = node.prepare(secrets={"HF_TOKEN": SECRET})
    assert answer.code == 1
    assert SECRET not in str(answer.events)
    assert SECRET.encode() not in b"".join(node.everything().values())
    return str(answer.last["what"])


def test_a_link_in_the_place_of_the_folder(node: Node, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (node.memory / f"sparkbuild-{os.geteuid()}").symlink_to(elsewhere)
    assert refused(node) == "the folder for secrets belongs to somebody else"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user(node: Node) -> None:
    top = node.memory / f"sparkbuild-{os.geteuid()}"
    top.mkdir()
    os.chown(top, 12345, 12345)
    assert refused(node) == "the folder for secrets belongs to somebody else"
    assert list(top.iterdir()) == []


def test_a_file_in_the_place_of_the_folder(node: Node) -> None:
    (node.memory / f"sparkbuild-{os.geteuid()}").write_text("")
    assert refused(node) == "the folder for secrets belongs to somebody else"


def test_programs_among_the_files_can_be_run(node: Node) -> None:
    files = {"run.sh": b"#!/bin/sh\n", "tool": b"\x7fELF...", "mods/data": b"#"}
    top = Path(node.prepared(files=encoded(files))["files"])
    assert [mode(top / name) for name in files] == [0o755, 0o755, 0o644]
