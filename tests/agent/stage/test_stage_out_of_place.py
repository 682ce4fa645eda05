"""A sub-folder of staged data that is none any more: moved to a bigger disk and linked, or a mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import MIB, ROOT, call, flip, look, problems, request_for, tree

Make = Callable[[str, int], Path]


@pytest.fixture
def request_of(dst: Path, make: Make) -> dict[str, Any]:
    """Three files, one of them by itself, staged already."""
    files = {"a.bin": make("a.bin", MIB), "sub/b.bin": make("b.bin", MIB), "sub/deep/c.bin": make("c.bin", MIB)}
    request = request_for(dst, files)
    assert call("stage", request).code == 0
    return request


def moved(dst: Path, tmp_path: Path) -> Path:
    """The sub-folder moved as a person does, on one file system: no file of it changes its stamp."""
    bigger = tmp_path / "bigger"
    shutil.move(dst / "sub", bigger)
    (dst / "sub").symlink_to(bigger)
    return bigger


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in tree(folder)}


@pytest.mark.parametrize("full", [False, True])
def test_plan_and_verify_say_so(dst: Path, request_of: dict[str, Any], tmp_path: Path, full: bool) -> None:
    bigger = moved(dst, tmp_path)
    fact = look(dst, full=full, what=request_of["what"])
    text = f"is not in its folder: {dst}/sub is a symbolic link to {bigger}"
    assert problems(fact) == [f"sub/b.bin {text}", f"sub/deep/c.bin {text}"]
    refused = fact["refused"]
    assert (refused["part"], refused["where"]) == ("dst", f"{dst}/sub")
    assert f"rm {dst}/sub && mv {bigger} {dst}/sub" in refused["next"]


@pytest.mark.parametrize("more", [{}, {"full": True}, {"key": "b" * 64}])
@pytest.mark.parametrize("damaged", [False, True])
def test_nothing_behind_the_link_is_removed_or_changed(
    dst: Path, request_of: dict[str, Any], tmp_path: Path, more: dict[str, Any], damaged: bool
) -> None:
    bigger = moved(dst, tmp_path)
    if damaged:
        flip(bigger / "b.bin", 7)
        flip(dst / "a.bin", 7)
    before, here = content(bigger), content(dst)
    answer = call("stage", {**request_of, **more})
    assert answer.code == 1
    assert answer.last["what"] == "a folder is wanted where something else is"
    assert "nothing behind it was changed" in answer.last["found"]
    assert content(bigger) == before
    assert content(dst) == here, "the ledger too: nothing was begun"


def test_moved_back_it_is_whole_without_a_copy(dst: Path, request_of: dict[str, Any], tmp_path: Path) -> None:
    bigger = moved(dst, tmp_path)
    (dst / "sub").unlink()
    shutil.move(bigger, dst / "sub")
    assert problems(look(dst)) == []
    assert call("stage", request_of).last["bytes"] == 0


def test_a_small_folder_is_not_believed_by_its_stamps(dst: Path, make: Make, tmp_path: Path) -> None:
    """Which is answered without its ledger, most of the time."""
    assert call("stage", request_for(dst, {"sub/b.bin": make("b.bin", 1000)})).code == 0
    moved(dst, tmp_path)
    assert all(problems(look(dst)) for _ in range(4))


def test_a_file_that_nobody_wants_any_more_is_left_behind_the_link(
    dst: Path, request_of: dict[str, Any], tmp_path: Path
) -> None:
    bigger = moved(dst, tmp_path)
    files = request_of["what"]["files"][:1]
    answer = call("stage", {**request_of, "key": "b" * 64, "what": {"kind": "list", "files": files}})
    assert answer.code == 0, answer.events
    assert sorted(content(bigger)) == ["b.bin", "deep/c.bin"]


@pytest.mark.parametrize(
    "planted", ["draft.jsonl.tmp", "draft.jsonl", "a.part", "a.chunks", "ledger", "stamps", "owner"]
)
def test_a_link_planted_beside_the_data_is_not_written_through(
    dst: Path, make: Make, tmp_path: Path, planted: str
) -> None:
    from sparkbuild.agent.ledger.part import stem  # noqa: PLC0415 - how a part is called

    names = {"a.part": f"{stem('a.bin')}.part", "a.chunks": f"{stem('a.bin')}.chunks"}
    names |= {name: f"{name}.json" for name in ("ledger", "stamps", "owner")}
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (dst / ".sparkbuild").mkdir(parents=True)
    (dst / ".sparkbuild" / names.get(planted, planted)).symlink_to(theirs)
    call("stage", request_for(dst, {"a.bin": make("a.bin", 9 * MIB)}))
    assert theirs.read_text() == "theirs"
    assert not theirs.is_symlink()
    assert theirs.stat().st_nlink == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("verb", ["stage", "facts"])
def test_a_mount_inside_is_told_with_what_to_do(dst: Path, request_of: dict[str, Any], verb: str) -> None:
    import json  # noqa: PLC0415

    query = {"scheme": "staged", "store": "/", "dst": str(dst), "key": "b" * 64, "what": request_of["what"]}
    asked = {**request_of, "full": True} if verb == "stage" else {"store": "/", "queries": [query]}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sparkbuild.agent.main import main; sys.exit(main())"
    script = 'mount -t tmpfs none "$1/sub" && exec "$2" -I -c "$3" "$4"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(dst), sys.executable, code, verb]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(json.dumps(asked).encode() + b"\n")
        agent.stdin.flush()
        last = json.loads(agent.stdout.read().splitlines()[-1])
    told = last if verb == "stage" else last["facts"][0]["refused"]
    assert told["where"] == f"{dst}/sub"
    assert told["found"].startswith("a mount of another file system")
    assert f"umount {dst}/sub" in told["next"]
    assert problems(look(dst)) == [], "with the mount away all is as it was"


@pytest.mark.parametrize("umask", ["000", "077"])
def test_others_can_read_what_is_staged_and_not_write_it(dst: Path, make: Make, umask: str) -> None:
    """An engine's container often runs as another user than the one who staged."""
    request = request_for(dst, {"a.bin": make("a.bin", 9 * MIB), "sub/b.bin": make("b.bin", 10)})
    assert call("stage", request, shim=f"import os; os.umask(0o{umask})").code == 0
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (dst, *dst.rglob("*")) if path.name != "lock"}
    assert {modes.pop(name) for name in (dst.name, "sub", ".sparkbuild")} == {"0o755"}
    assert set(modes.values()) == {"0o644"}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("name", "mode"), [("", 0o700), ("sub", 0o750), ("sub/b.bin", 0o600)])
def test_data_that_others_cannot_read_is_told(dst: Path, make: Make, name: str, mode: int, full: bool) -> None:
    """As an earlier version staged it under umask 077. It is whole, so it is not staged anew: the look says it."""
    request = request_for(dst, {"a.bin": make("a.bin", 9), "sub/b.bin": make("b.bin", 10)})
    assert call("stage", request).code == 0
    assert look(dst, full=full)["closed"] == ""
    path = dst / name if name else dst
    path.chmod(mode)
    for _ in range(2):  # the second look has only stamps to compare
        fact = look(dst, full=full)
        assert (fact["closed"], problems(fact)) == (str(path), [])
    subprocess.run(["chmod", "-R", "go+rX", dst], check=True)
    fact = look(dst, full=full)
    assert (fact["closed"], problems(fact)) == ("", [])


def test_a_file_that_is_a_hard_link_of_its_source(dst: Path, make: Make) -> None:
    """It gets content of its own; that its source has a name less by that is no change of the source."""
    source = make("a.bin", 9 * MIB)
    dst.mkdir(parents=True)
    os.link(source, dst / "a.bin")
    model = {"kind": "folder", "path": str(source.parent)}
    request = {"dst": str(dst), "key": "a" * 64, "parts": {}, "what": model}
    answer = call("stage", request)
    assert answer.code == 0, answer.events
    assert source.stat().st_nlink == 1
    assert (dst / "a.bin").read_bytes() == source.read_bytes()
