"""The record of a finished folder: what changed in it is found and named, and what did not costs no reading."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.agent.image import tree
from tests.agent.driver import flip


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/deep").mkdir(parents=True)
    (folder / "lib/a.py").write_text("a = 1\n")
    (folder / "lib/deep/b.py").write_text("b = 2\n")
    (folder / "lib/empty").touch()
    (folder / "bin/python").symlink_to("/usr/bin/python3")
    (folder / "bin/gone").symlink_to("nowhere")
    (folder / "lib64").symlink_to("lib")
    assert tree.write(str(folder)) == 12 + len("/usr/bin/python3") + len("nowhere") + len("lib")
    assert tree.problem(str(folder)) == ""
    return folder


def stamps(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((folder / "stamps.json").read_text())["stamps"]
    return found


def test_every_file_is_recorded_and_none_of_ours(built: Path) -> None:
    recorded = json.loads((built / "tree.json").read_text())["files"]
    assert list(recorded) == ["bin/gone", "bin/python", "lib/a.py", "lib/deep/b.py", "lib/empty", "lib64"]
    assert recorded["bin/python"].startswith("link:")
    assert set(stamps(built)) == set(recorded)


def remove(path: Path) -> None:
    path.unlink()


def edit(path: Path) -> None:
    path.write_text("a = 9\n")


def grow(path: Path) -> None:
    path.write_text("a = 1\n\n")


def edit_and_set_back(path: Path) -> None:
    """Same size, same mtime: only the ctime tells."""
    flip(path, 2)


def replace_and_set_back(path: Path) -> None:
    before = path.stat()
    other = path.with_name("other")
    other.write_text("a = 9\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)


def link_instead(path: Path) -> None:
    """A link to the same content is another thing: what it leads to may change."""
    moved = path.parents[2] / "moved"
    path.rename(moved)
    path.symlink_to(moved)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe_instead(path: Path) -> None:
    """Reading it would wait for ever."""
    path.unlink()
    os.mkfifo(path)


CHANGES = [edit, grow, edit_and_set_back, replace_and_set_back, link_instead, folder_instead, pipe_instead]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file(built: Path, change: Callable[[Path], None]) -> None:
    change(built / "lib/a.py")
    assert tree.problem(str(built)) == "lib/a.py is not as it was built"
    assert tree.problem(str(built)) == "lib/a.py is not as it was built", "asking does not make it right"


def test_missing_files(built: Path) -> None:
    remove(built / "lib/a.py")
    assert tree.problem(str(built)) == "lib/a.py is missing"
    shutil.rmtree(built / "bin")
    assert tree.problem(str(built)) == "bin/gone is missing, and 2 more"


@pytest.mark.parametrize("target", ["/usr/bin/python2", "../bin/python3"])
def test_a_link_that_leads_elsewhere(built: Path, target: str) -> None:
    (built / "bin/python").unlink()
    (built / "bin/python").symlink_to(target)
    assert tree.problem(str(built)) == "bin/python is not as it was built"


def test_a_link_to_a_folder(built: Path) -> None:
    (built / "lib64").unlink()
    (built / "lib64").symlink_to("lib/deep")
    assert tree.problem(str(built)) == "lib64 is not as it was built"
    (built / "lib64").unlink()
    assert tree.problem(str(built)) == "lib64 is missing"


def test_a_file_in_the_place_of_a_link(built: Path) -> None:
    (built / "bin/gone").unlink()
    (built / "bin/gone").write_text("nowhere")
    assert tree.problem(str(built)) == "bin/gone is not as it was built"


def test_touched_files_are_read_once_and_are_right(built: Path) -> None:
    before = stamps(built)
    os.utime(built / "lib/a.py", (1, 1))
    os.chmod(built / "lib/deep/b.py", 0o600)
    assert tree.problem(str(built)) == ""
    after = stamps(built)
    assert [name for name in after if after[name] != before[name]] == ["lib/a.py", "lib/deep/b.py"]


def test_unchanged_files_are_not_read(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> str:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(tree, "_digest", read)
    assert tree.problem(str(built)) == ""
    os.utime(built / "lib/a.py", (1, 1))
    with pytest.raises(AssertionError, match=r"a\.py was read"):
        tree.problem(str(built))


def test_what_python_writes_beside_is_no_change(built: Path) -> None:
    (built / "lib/__pycache__").mkdir()
    (built / "lib/__pycache__/a.pyc").write_bytes(b"code")
    assert tree.problem(str(built)) == ""
    assert tree.write(str(built)) > 0
    assert not [name for name in json.loads((built / "tree.json").read_text())["files"] if "pycache" in name]


@pytest.mark.parametrize("how", ["copied", "copied with all times", "moved"])
def test_a_folder_in_another_place(built: Path, tmp_path: Path, how: str) -> None:
    """A copy has other inodes: nothing is believed of it that was not read, the cache that came along included."""
    other = tmp_path / "other"
    if how == "moved":
        built.rename(other)
    else:
        copy = shutil.copy if how == "copied" else shutil.copy2
        shutil.copytree(built, other, symlinks=True, copy_function=copy)
        (other / "lib/deep/b.py").write_text("b = 3\n")
        assert tree.problem(str(other)) == "lib/deep/b.py is not as it was built"
        (other / "lib/deep/b.py").write_text("b = 2\n")
    assert tree.problem(str(other)) == ""
    (other / "lib/a.py").write_text("a = 9\n")
    assert tree.problem(str(other)) == "lib/a.py is not as it was built"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stamps": []}', '{"stamps": {"lib/a.py": 7}}', None])
def test_a_lost_or_damaged_cache_only_costs_time(built: Path, text: str | None) -> None:
    if text is None:
        (built / "stamps.json").unlink()
    else:
        (built / "stamps.json").write_text(text)
    assert tree.problem(str(built)) == ""
    assert len(stamps(built)) == 6
    (built / "lib/a.py").write_text("a = 9\n")
    assert tree.problem(str(built)) == "lib/a.py is not as it was built"


@pytest.mark.parametrize("text", ["", '{"files": {"lib/a.py": ', "[]", '{"files": []}', None])
def test_without_its_record_a_folder_is_nothing(built: Path, text: str | None) -> None:
    if text is None:
        (built / "tree.json").unlink()
    else:
        (built / "tree.json").write_text(text)
    assert tree.problem(str(built)) == "the record of its files is gone or unreadable"
