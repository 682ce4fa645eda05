"""A held folder: nothing below it is reached through a link or on another file system, whatever stands there."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.disk.private import private
from sparkbuild.agent.wire.protocol import AgentError
from tests.agent.driver import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a link to one beside it, which holds something of somebody else's."""
    inner, outer = tmp_path / "folder", tmp_path / "outer"
    inner.mkdir()
    (outer / "deep").mkdir(parents=True)
    (outer / "deep/theirs").write_text("theirs")
    (inner / "link").symlink_to(outer)
    return inner


def through_the_link(held: Held) -> list[object]:
    """Every call that changes something, with the link on the way to its name."""
    return [
        lambda: held.unlink("link/deep/theirs"),
        lambda: held.rename("link/deep/theirs", "mine"),
        lambda: held.rename("own", "link/deep/theirs"),
        lambda: held.open("link/deep/theirs", os.O_WRONLY | os.O_TRUNC),
        lambda: held.create("link/deep/theirs"),
        lambda: held.replace("link/deep/theirs", lambda file: file.write(b"x")),
        lambda: held.makedirs("link/deep/more"),
        lambda: held.symlink("/", "link/deep/more"),
        lambda: held.link(held.at("own"), "link/deep/more"),
        lambda: held.chmod("link/deep/theirs", 0o777),
        lambda: held.chmod("link", 0o777),
        lambda: held.listdir("link"),
        lambda: held.flush("link/deep"),
        lambda: held.folder("link"),
    ]


@pytest.mark.parametrize("number", range(14))
def test_nothing_is_done_through_a_link(folder: Path, number: int) -> None:
    (folder / "own").write_text("own")
    outer = folder.parent / "outer"
    mode = outer.stat().st_mode
    with Held(str(folder)) as held:
        call = through_the_link(held)[number]
        with pytest.raises(OSError, match="folder/") as raised:
            call()  # type: ignore[operator]
        assert raised.value.errno in (errno.ENOTDIR, errno.ELOOP)
        held.rmdir("link/deep")
        held.rmtree("link/deep")
        assert held.lstat("link/deep/theirs") is None
    assert (outer / "deep/theirs").read_text() == "theirs"
    assert os.listdir(outer / "deep") == ["theirs"]
    assert outer.stat().st_mode == mode
    assert (folder / "own").read_text() == "own"


def test_a_link_in_the_place_of_a_file_is_not_written_through(folder: Path) -> None:
    outer = folder.parent / "outer/deep/theirs"
    (folder / "a").symlink_to(outer)
    (folder / f"b.{os.getpid()}.tmp").symlink_to(outer)
    with Held(str(folder)) as held:
        with pytest.raises(OSError, match="symbolic links"):
            held.open("a", os.O_WRONLY | os.O_CREAT)
        os.close(held.create("a"))
        held.replace("b", lambda file: file.write(b"b"))
        held.rmtree("link")
    assert outer.read_text() == "theirs"
    assert not (folder / "a").is_symlink()
    assert (folder / "b").read_bytes() == b"b"
    assert not (folder / "link").is_symlink(), "the link went, what it leads to did not"


@pytest.mark.parametrize("name", ["..", "a/../b", "/etc/x", "", "a//b", "./a", "a\0b"])
def test_a_name_that_could_lead_out_is_none(folder: Path, name: str) -> None:
    with Held(str(folder)) as held, pytest.raises(ValueError, match="no name in a folder"):
        held.unlink(name)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_are_as_asked_for_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Held(str(tmp_path)) as held:
            assert held.makedirs("a/b") == ["a", "a/b"]
            assert held.makedirs("a/b/c", 0o700) == ["a/b/c"]
            os.close(held.create("a/file"))
            held.replace("a/secret", lambda file: file.write(b"x"), 0o600)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o755, "b": 0o755, "c": 0o700, "file": 0o644, "secret": 0o600}


def test_a_replacement_that_fails_leaves_what_was_there(folder: Path) -> None:
    def fail(_file: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (folder / "a").write_text("before")
    with Held(str(folder)) as held, pytest.raises(OSError, match="No space"):
        held.replace("a", fail)
    assert sorted(os.listdir(folder)) == ["a", "link"]
    assert (folder / "a").read_text() == "before"


WRITER = f"""
import sys, time; sys.path.insert(0, {str(ROOT)!r})
from sparkbuild.agent.disk.held import Held
def write(file):
    file.write(b"half of it")
    file.flush()
    print("at work", flush=True)
    time.sleep(60)
Held(sys.argv[1]).replace("record", write)
"""


@pytest.fixture
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written half of a file."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-I", "-c", WRITER, str(folder)], stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "at work\n"
        yield process
        process.kill()


def test_what_a_killed_writer_left_goes_with_the_next_write(folder: Path, writer: subprocess.Popen[str]) -> None:
    left = folder / f"record.{writer.pid}.tmp"
    own = folder / f"other.{os.getpid()}.tmp"  # of one before us that had our number
    own.touch()
    with Held(str(folder)) as held:
        held.replace("a", lambda file: file.write(b"a"))
        assert left.exists(), "its writer is at work"
        assert not own.exists()
        writer.kill()
        writer.wait()
        assert left.exists()
        held.replace("a", lambda file: file.write(b"a"))
    assert sorted(os.listdir(folder)) == ["a", "link"]


def test_what_looks_like_a_left_file_and_is_none_stays(folder: Path) -> None:
    names = ["a.1.tmp", "b.1.tmp", "c.tmp", "d.x.tmp", "link"]
    (folder / names[0]).mkdir()
    (folder / names[1]).symlink_to(folder.parent / "outer/deep/theirs")
    for name in names[2:4]:
        (folder / name).touch()
    if os.geteuid() == 0:
        names.append("e.1.tmp")
        (folder / "e.1.tmp").touch()
        os.chown(folder / "e.1.tmp", 12345, -1)
    with Held(str(folder)) as held:
        held.replace("z", lambda file: file.write(b"z"))
    assert sorted(os.listdir(folder)) == sorted([*names, "z"])


def test_writers_in_one_folder_do_not_sweep_each_other(folder: Path) -> None:
    def many(name: str) -> None:
        with Held(str(folder)) as held:
            for _ in range(200):
                held.replace(name, lambda file: file.write(name.encode()), flush=False)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(many, ["a", "b", "c", "d"]))
    assert sorted(os.listdir(folder)) == ["a", "b", "c", "d", "link"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_is_not_entered(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from sparkbuild.agent.disk.held import Held
held = Held({str(tmp_path)!r})
for call in (lambda: held.unlink("top/disk/file"), lambda: held.makedirs("top/disk/more")):
    try:
        call()
    except OSError as error:
        print(error.errno, error.filename)
held.rmtree("top")
import os
print(os.listdir({str(tmp_path / "top/disk")!r}), os.path.exists({str(tmp_path / "top/mine")!r}))
"""
    mount = 'mkdir -p "$1/top/disk" && touch "$1/top/mine" && mount -t tmpfs none "$1/top/disk" && '
    mount += 'touch "$1/top/disk/file" && exec "$2" -c "$3"'
    argv = ["unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    first, second, left = done.stdout.splitlines()
    assert first == second == f"{errno.EXDEV} {tmp_path}/top/disk" or first.startswith(f"{errno.EXDEV} ")
    assert left == "['file'] False", "what is on the mount stays, what is ours beside it goes"


def test_a_private_folder_is_made_closed_and_ours(tmp_path: Path) -> None:
    path = tmp_path / "ours"
    for _ in range(2):
        with private(str(path), "it"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        path.chmod(0o777)


@pytest.mark.parametrize("kind", ["link", "file", "another's"])
def test_a_private_folder_that_is_another_s_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ours"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        path.write_text("")
    elif os.geteuid() == 0:
        path.mkdir()
        os.chown(path, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    with pytest.raises(AgentError) as raised:
        private(str(path), "it")
    assert raised.value.fields["what"] == "it belongs to somebody else"
    assert raised.value.fields["where"] == str(path)
    assert "ls -ld" in raised.value.fields["next"]
