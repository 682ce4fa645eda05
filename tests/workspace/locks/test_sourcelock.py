"""A lock and the files it pins: verify, pin, write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbuild.core.errors import LockError
from sparkbuild.workspace.files.inputs import LIMIT
from sparkbuild.workspace.locks.sourcelock import pin, read, verify, write
from tests.workspace.helpers import FORMAT, digest, put

NAME = "locks/demo.source.lock"


def pinned(root: Path, name: str, sha256: str) -> tuple[LockError, ...]:
    return verify(read(put(root, NAME, f"{FORMAT}input.{name}.sha256={sha256}\n"), root), root)


def test_nothing_disagrees(tmp_path: Path) -> None:
    put(tmp_path, "images/a/req.lock", "x")
    assert pinned(tmp_path, "images/a/req.lock", digest("x")) == ()


def test_a_changed_file_names_both_hashes_and_what_to_do(tmp_path: Path) -> None:
    put(tmp_path, "images/a/req.lock", "changed")
    (error,) = pinned(tmp_path, "images/a/req.lock", digest("x"))
    assert "images/a/req.lock" in error.what
    assert (error.found, error.wanted, error.where) == (digest("changed"), digest("x"), f"{NAME}:2")
    assert "doit lock:check" in error.next
    assert "doit lock:pin:demo" in error.next


def test_a_missing_file(tmp_path: Path) -> None:
    (error,) = pinned(tmp_path, "gone", digest("x"))
    assert error.what == "gone does not exist"
    assert "doit lock:check" in error.next


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/hostname", "./a", "a//b", "a/"])
def test_paths_that_leave_the_workspace_or_have_two_spellings(tmp_path: Path, name: str) -> None:
    root = tmp_path / "ws"
    put(tmp_path, "out", "x")
    put(root, "a/b", "x")
    assert len(pinned(root, name, digest("x"))) == 1


def test_links_inside_are_followed_and_links_outside_are_not(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    put(tmp_path, "out/file", "x")
    put(root, "real/file", "x")
    (root / "in").symlink_to("real")
    (root / "away").symlink_to(tmp_path / "out")
    (root / "hop").symlink_to("away/file")
    (root / "loop").symlink_to("loop")
    assert pinned(root, "in/file", digest("x")) == ()
    for name in ("away/file", "hop"):
        (error,) = pinned(root, name, digest("x"))
        assert "leads out" in error.what
    assert len(pinned(root, "loop", digest("x"))) == 1


def test_a_linked_workspace_is_a_workspace(tmp_path: Path) -> None:
    put(tmp_path / "real", "file", "x")
    (tmp_path / "ws").symlink_to("real")
    assert pinned(tmp_path / "ws", "file", digest("x")) == ()


def test_folders_pipes_and_big_files_are_refused_without_hanging(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(LIMIT + 1)
    found = [pinned(tmp_path, name, digest("x"))[0].what for name in ("folder", "pipe", "big")]
    assert found == ["folder is a folder", "pipe is not a regular file", "big is too big"]


def test_pin_changes_what_differs_and_keeps_the_rest(tmp_path: Path) -> None:
    put(tmp_path, "a", "A")
    put(tmp_path, "b", "B")
    put(tmp_path, "c", "C")
    text = f"{FORMAT}# why\ninput.a.sha256={digest('A')}\n\ninput.b.sha256=\nname=x\n"
    path = put(tmp_path, NAME, text)
    new, changed = pin(path, tmp_path, also=("a", "c"))
    assert changed == ("input.b.sha256", "input.c.sha256")
    assert new == text.replace("b.sha256=", f"b.sha256={digest('B')}") + f"input.c.sha256={digest('C')}\n"
    assert path.read_text() == text
    write(path, new, "locks/a.source.lock")
    assert verify(read(path, tmp_path), tmp_path) == ()
    assert pin(path, tmp_path) == (new, ())


def test_pin_refuses_a_missing_file_and_other_mistakes_of_the_lock(tmp_path: Path) -> None:
    path = put(tmp_path, NAME, f"{FORMAT}input.gone.sha256=\n")
    with pytest.raises(LockError) as caught:
        pin(path, tmp_path)
    assert caught.value.where == f"{NAME}:2"
    put(tmp_path, NAME, f"{FORMAT}x.commit=1\n")
    with pytest.raises(LockError):
        pin(path, tmp_path)


def test_write_replaces_whole_and_keeps_mode_and_link(tmp_path: Path) -> None:
    path = put(tmp_path, "real.source.lock", "old")
    path.chmod(0o664)
    link = tmp_path / "link.source.lock"
    link.symlink_to(path.name)
    write(link, "new", "locks/a.source.lock")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o664
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.source.lock", "real.source.lock"]


def test_a_read_only_lock_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.source.lock", "old")
    path.chmod(0o444)
    with pytest.raises(LockError, match="cannot be written") as caught:
        write(path, "new", "locks/a.source.lock")
    assert caught.value.found == "it is read-only"
    assert "chmod u+w locks/a.source.lock" in caught.value.next
    assert str(tmp_path) not in str(caught.value)
    assert path.read_text() == "old"


def test_write_that_fails_leaves_the_old_text(tmp_path: Path) -> None:
    path = put(tmp_path, "a.source.lock", "old")
    with pytest.raises(UnicodeEncodeError):
        write(path, "\udc80", "locks/a.source.lock")
    with pytest.raises(LockError, match="cannot be written"):
        write(tmp_path / "no/such/folder.source.lock", "x", "no/such/folder.source.lock")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.source.lock"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("data", [b"\xff\xfe", FORMAT.encode() + b"a=\xff\n"])
def test_a_lock_that_is_not_utf8(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.source.lock"
    path.write_bytes(data)
    with pytest.raises(LockError, match="not UTF-8") as caught:
        read(path, tmp_path)
    assert caught.value.where == f"x.source.lock:{data.count(10) or 1}" if data[0] == 0xFF else "x.source.lock:2"


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="does not exist"):
        read(tmp_path / "x.source.lock", tmp_path)
