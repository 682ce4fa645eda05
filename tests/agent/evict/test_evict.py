"""Eviction: what sparkbuild staged goes, as far as it is ours, and nothing else; the index, and what it is worth."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import index, noting
from tests.agent.driver import MIB, call, finish, key, look, request_for, start, tree
from tests.agent.exports import Site
from tests.agent.fake_docker import Engine, running as docker_running
from tests.workspace_tool import until

Make = Callable[[str, int], Path]
OWNER = {"recipe": "big", "block": "weights", "workspace": "here:/srv/w"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def staged(store: Path, dst: Path, files: dict[str, Path], char: str = "a") -> dict[str, Any]:
    request = request_for(dst, files, char, store=str(store), owner=OWNER)
    answer = call("stage", request)
    assert answer.code == 0, answer.events
    noting.noted(request, str(dst), lambda: answer.last)
    return request


def evict(store: Path, *folders: Path | str, **more: Any) -> list[dict[str, Any]]:
    answer = call("evict", {"store": str(store), "dsts": [str(dst) for dst in folders], **more})
    assert answer.code == 0, answer.events
    return list(answer.last["folders"])


def inventory(store: Path, **more: Any) -> list[dict[str, Any]]:
    query = {"scheme": "inventory", **more}
    answer = call("facts", {"store": str(store), "queries": [query]})
    return list(answer.last["facts"][0]["folders"])


@pytest.fixture
def lane(store: Path) -> Iterator[Callable[[list[str]], dict[str, Any]]]:
    """Launches a process as a lane that uses folders."""
    pids = []

    def launch(uses: list[str]) -> dict[str, Any]:
        request = {
            "store": str(store), "recipe": "other", "launch": "1", "rank": 0, "world_size": 1, "key": key(),
            "parts": {}, "argv": ["sleep", "600"], "env": {}, "host": "127.0.0.1", "port": 0, "model_id": "m",
            "protect": False, "uses": uses,
        }  # fmt: skip
        answer = call("launch", request)
        assert answer.code == 0, answer.events
        pids.append(answer.last["record"]["pid"])
        return dict(answer.last["record"])

    yield launch
    for pid in pids:
        with suppress(ProcessLookupError):  # a test may have stopped it
            os.killpg(pid, signal.SIGKILL)


def test_all_that_was_staged_goes(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", 5 * MIB), "deep/er/b.bin": make("b.bin", MIB)})
    (row,) = inventory(store)
    assert (row["recipe"], row["block"], row["present"], row["used"]) == ("big", "weights", True, "")
    assert row["frees"] >= 6 * MIB
    assert 0 < time.time() - row["staged_at"] < 60
    (done,) = evict(store, dst)
    assert done["refused"] == ""
    assert done["freed"] >= 6 * MIB
    assert (done["files"], done["left"]) == (2, [])
    assert not dst.exists()
    assert inventory(store) == []


def test_what_others_put_there_stays_and_is_named(store: Path, dst: Path, make: Make, tmp_path: Path) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB), "deep/b.bin": make("b.bin", MIB)})
    (dst / "deep/notes.txt").write_text("mine")
    (dst / "empty").mkdir()
    (dst / "away").symlink_to(tmp_path)
    (done,) = evict(store, dst)
    assert (done["left"], done["others"]) == (["away", "deep/notes.txt"], 2)
    assert sorted(path.name for path in dst.rglob("*") if not path.is_symlink()) == ["deep", "empty", "notes.txt"]
    assert list((store / "staged-index").glob("*.json")) == []


def test_what_sparkbuild_did_not_stage_is_refused(store: Path, dst: Path, make: Make) -> None:
    call("stage", request_for(dst, {"a.bin": make("a.bin", MIB)}))
    (done,) = evict(store, dst)
    assert done["refused"].startswith("sparkbuild staged nothing there: it is not in the index")
    assert (dst / "a.bin").exists()


def test_what_is_wanted_is_refused(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    (done,) = evict(store, dst, keep=[str(dst)])
    assert done["refused"] == "it is wanted"
    assert (dst / "a.bin").exists()


@pytest.mark.parametrize("where", ["it", "above", "within"])
def test_what_a_running_lane_uses_is_refused(
    store: Path, dst: Path, make: Make, lane: Callable[[list[str]], dict[str, Any]], where: str
) -> None:
    staged(store, dst, {"deep/a.bin": make("a.bin", MIB)})
    record = lane([{"it": str(dst), "above": str(dst.parent), "within": f"{dst}/deep"}[where]])
    (row,) = inventory(store)
    assert row["used"] == "lane other runs and uses it"
    assert time.time() - 60 < row["served_at"] < time.time()
    (done,) = evict(store, dst)
    assert done["refused"] == "lane other runs and uses it"
    assert (dst / "deep/a.bin").exists()
    assert call("stop", {"store": str(store), "recipe": "other", "grace": 5.0}).last["pid"] == record["pid"]
    (row,) = inventory(store)
    assert row["served_at"] > record["launched_at"]
    assert evict(store, dst)[0]["refused"] == ""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with docker_running(tmp_path) as found:
        yield found


@pytest.mark.parametrize("where", ["it", "above", "within", "by another name", "its export"])
@pytest.mark.parametrize("ours", [True, False])
def test_what_a_running_container_has_mounted_is_refused(site: Site, engine: Engine, where: str, ours: bool) -> None:
    """Whichever store it was launched from, and by hand too: this store has no record of it."""
    named = site.store.with_name("named")
    site.store.rename(named)
    site.store.symlink_to(named)
    folder = str(site.mirror)
    source = {
        "it": folder, "above": str(site.mirror.parent), "within": f"{folder}/blobs", "by another name":
        folder.replace(str(site.store), str(named)), "its export": str(site.dst),
    }[where]  # fmt: skip
    engine.add("a", "running", ours=ours, name="theirs", store="0123", mounts=["/var/lib/docker/volumes/x", source])
    text = "container theirs runs and has it mounted"
    (row,) = inventory(site.store, docker=engine.path)
    assert row["used"] == text
    assert evict(site.store, site.mirror, docker=engine.path)[0]["refused"] == text
    assert site.texts() == []
    engine.containers[0]["State"] = "exited"
    assert inventory(site.store, docker=engine.path)[0]["used"] == ""
    assert evict(site.store, site.mirror, docker=engine.path)[0]["refused"] == ""
    assert not site.mirror.exists()


def test_a_container_that_watches_the_whole_machine_or_uses_a_neighbour_keeps_nothing(
    store: Path, dst: Path, make: Make, engine: Engine
) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    engine.add("a", "running", ours=False, name="watcher", mounts=["/", f"{dst}-2"])
    engine.add("b", "running", ours=False, name="bare")
    assert evict(store, dst, docker=engine.path)[0]["refused"] == ""


def test_docker_that_does_not_answer_may_have_it_mounted(store: Path, dst: Path, make: Make, engine: Engine) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    engine.broken = True
    (done,) = evict(store, dst, docker=engine.path)
    assert done["refused"] == "a container may have it mounted: dockerd answers 500: it is not well"
    assert (dst / "a.bin").exists()
    assert evict(store, dst, docker=str(dst / "no.sock"))[0]["refused"] == "", "there is no docker"


def test_what_is_being_staged_is_refused(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    with (dst / ".sparkbuild/lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (done,) = evict(store, dst)
    assert done["refused"].startswith("it is being staged by another process")
    assert (dst / "a.bin").exists()


def test_a_link_in_its_place_is_refused(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    moved = dst.with_name("elsewhere")
    dst.rename(moved)
    dst.symlink_to(moved)
    (done,) = evict(store, dst)
    assert done["refused"] == "it is a symbolic link: what it leads to is not touched"
    assert (moved / "a.bin").exists()
    (row,) = inventory(store)
    assert "symbolic link" in row["problem"]


def test_a_link_inside_is_not_followed(store: Path, dst: Path, make: Make, tmp_path: Path) -> None:
    staged(store, dst, {"deep/a.bin": make("a.bin", MIB), "b.bin": make("b.bin", MIB)})
    away = tmp_path / "away"
    (dst / "deep").rename(away)
    (dst / "deep").symlink_to(away)
    (dst / "b.bin").unlink()
    (dst / "b.bin").symlink_to(away / "a.bin")
    (done,) = evict(store, dst)
    assert (done["files"], done["left"]) == (0, ["b.bin", "deep"])
    assert (away / "a.bin").stat().st_size == MIB


def test_what_we_keep_beside_the_data_as_a_link_is_refused(store: Path, dst: Path, make: Make, tmp_path: Path) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    (dst / ".sparkbuild").rename(tmp_path / "ours")
    (dst / ".sparkbuild").symlink_to(tmp_path / "ours")
    (done,) = evict(store, dst)
    assert "symbolic link" in done["refused"]
    assert (dst / "a.bin").exists()


def test_a_ledger_of_something_else_is_refused(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    call("stage", request_for(dst, {"a.bin": make("a.bin", MIB)}, "c"))  # from another store
    (done,) = evict(store, dst)
    assert done["refused"] == "its ledger is of something else than was staged from here"


def test_a_damaged_ledger_is_refused(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    (dst / ".sparkbuild/ledger.json").write_text("{}")
    (done,) = evict(store, dst)
    assert done["refused"].startswith("its ledger is unreadable")
    assert (dst / "a.bin").exists()


def test_what_was_removed_by_hand_only_leaves_the_index(store: Path, dst: Path, make: Make) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    subprocess.run(["rm", "-r", dst], check=True)
    assert inventory(store)[0]["frees"] == 0
    assert evict(store, dst)[0] == {"dst": str(dst), "refused": "", "freed": 0, "files": 0, "left": [], "others": 0}
    assert inventory(store) == []


def test_a_file_with_another_name_gives_nothing_back(store: Path, dst: Path, make: Make, tmp_path: Path) -> None:
    staged(store, dst, {"a.bin": make("a.bin", 5 * MIB)})
    os.link(dst / "a.bin", tmp_path / "export.bin")
    (row,) = inventory(store)
    assert row["kept"] >= 5 * MIB
    assert row["frees"] < MIB
    assert evict(store, dst)[0]["freed"] < MIB


def test_an_interrupted_staging_goes_too(store: Path, dst: Path, make: Make) -> None:
    files = {"a.bin": make("a.bin", 2 * MIB), "b.bin": make("b.bin", 40 * MIB)}
    request = request_for(dst, files, store=str(store), owner=OWNER, bwlimit=8 * MIB, streams=1)
    process = start("stage", request)
    until(lambda: list(dst.glob(".sparkbuild/b.bin*.part")))
    process.kill()
    finish(process)
    assert not (dst / ".sparkbuild/ledger.json").exists()
    (row,) = inventory(store)
    assert (row["present"], row["frees"] > MIB) == (False, True)
    assert evict(store, dst)[0]["refused"] == ""
    assert not dst.exists()


KILLS = range(1, 17)


@pytest.mark.parametrize("at", KILLS)
def test_a_kill_anywhere_leaves_nothing_that_looks_whole_and_a_rerun_finishes(
    store: Path, dst: Path, make: Make, at: int
) -> None:
    request = staged(store, dst, {"a.bin": make("a.bin", MIB), "deep/b.bin": make("b.bin", MIB)})
    shim = (
        "import os, signal\ncount = 0\n"
        "def watched(real):\n"
        "    def call(*args, **more):\n        global count\n        count += 1\n"
        f"        os.kill(os.getpid(), signal.SIGKILL) if count == {at} else None\n"
        "        return real(*args, **more)\n    return call\n"
        "for name in ('unlink', 'rmdir', 'rename', 'fsync'):\n    setattr(os, name, watched(getattr(os, name)))\n"
    )
    answer = finish(start("evict", {"store": str(store), "dsts": [str(dst)]}, shim=shim))
    fact = look(dst)
    if fact["present"]:
        assert fact["problems"] == []
    if answer.code == 0:
        assert at > 12
    elif not inventory(store):  # all that was ours is gone
        assert tree(dst) == []
    elif at % 2:
        assert evict(store, dst)[0]["refused"] == ""
        assert not (dst / "a.bin").exists()
        assert inventory(store) == []
    else:  # it is wanted again after all
        done = call("stage", request)
        assert done.code == 0, done.events
        assert look(dst)["problems"] == []
        assert [name for name in tree(dst) if ".sparkbuild" not in name] == ["a.bin", "deep/b.bin"]


def test_who_waited_for_the_folder_stages_into_a_new_one(store: Path, dst: Path, make: Make) -> None:
    request = staged(store, dst, {"a.bin": make("a.bin", MIB)})
    shim = (
        "import time\nfrom sparkbuild.agent.evict import evict\nreal = evict._remove\n"
        "def slow(*args):\n    time.sleep(1.5)\n    return real(*args)\nevict._remove = slow\n"
    )
    process = start("evict", {"store": str(store), "dsts": [str(dst)]}, shim=shim)
    until(lambda: f"pid {process.pid} " in (dst / ".sparkbuild/lock").read_text())
    answer = call("stage", request)
    assert finish(process).code == 0
    assert answer.code == 0, answer.events
    assert "waiting" in answer.logs
    assert look(dst)["problems"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"dst": "/"},
        {"dst": "relative"},
        {"dst": "/etc/../etc"},
        {"dst": 7},
        {"format": "another"},
        {"bytes": "many"},
        {"bytes": True},
        {"staged_at": None},
        {"recipe": ["x"]},
        {"block": "\x1b[2J"},
        {"key": None},
    ],
)
def test_a_hostile_entry_is_none(store: Path, dst: Path, make: Make, change: dict[str, Any]) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    path = Path(index.path_of(str(store), str(dst)))
    value = json.loads(path.read_text()) | change
    target = str(value["dst"])
    path.rename(index.path_of(str(store), target))
    Path(index.path_of(str(store), target)).write_text(json.dumps(value))
    assert inventory(store) == []
    assert evict(store, dst)[0]["refused"].startswith("sparkbuild staged nothing there")
    assert (dst / "a.bin").exists()


@pytest.mark.parametrize("what", ["other name", "empty", "brackets", "link", "pipe", "folder", "big"])
def test_what_is_no_entry_is_left_out(store: Path, dst: Path, make: Make, tmp_path: Path, what: str) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    path = Path(index.path_of(str(store), str(dst)))
    text = path.read_text()
    path.unlink()
    if what == "other name":
        path.with_name(f"{'0' * 64}.json").write_text(text)
    elif what == "link":
        (tmp_path / "real.json").write_text(text)
        path.symlink_to(tmp_path / "real.json")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.write_text({"empty": "", "brackets": "[" * 10_000, "big": text + " " * 70_000}[what])
    assert inventory(store) == []
    assert evict(store, dst)[0]["refused"].startswith("sparkbuild staged nothing there")


def test_the_index_knows_a_staging_from_its_beginning_and_the_key_that_was_before(store: Path, dst: Path) -> None:
    request = {"store": str(store), "key": key(), "owner": OWNER}
    (dst / ".sparkbuild").mkdir(parents=True)  # as under the lock of the folder

    def during() -> dict[str, Any]:
        found = index.entry(str(store), str(dst))
        assert found is not None
        seen.append((found.key[0], found.before[:1], found.staged_at > 0))
        return {"total": 7}

    seen: list[tuple[str, str, bool]] = []
    noting.noted(request, str(dst), during)
    noting.noted({**request, "key": key("b")}, str(dst), during)
    assert seen == [("a", "", False), ("b", "a", True)]
    found = index.entry(str(store), str(dst))
    assert found is not None
    assert (found.bytes, found.before) == (7, "")


def evicted(store: Path, dst: Path, scheme: str = "staged") -> dict[str, Any] | None:
    """What a look at a folder says of its eviction."""
    query = {"scheme": scheme, "dst": str(dst), "key": key(), "full": False}
    fact = call("facts", {"store": str(store), "queries": [query]}).last["facts"][0]
    assert fact["present"] is False
    return fact.get("evicted")


def test_it_is_known_what_was_evicted_and_for_what_until_it_is_staged_again(store: Path, dst: Path, make: Make) -> None:
    request = staged(store, dst, {"a.bin": make("a.bin", MIB)})
    (dst / "notes.txt").write_text("mine")  # the folder stays
    assert evict(store, dst, **{"for": "stage:big:dgx1:model"})[0]["refused"] == ""
    found = evicted(store, dst)
    assert found is not None
    assert time.time() - 60 < found["at"] < time.time()
    assert found["for"] == "stage:big:dgx1:model"
    assert evicted(store, dst.with_name("other")) is None
    assert inventory(store) == []
    answer = call("stage", {**request, "min_free": 1 << 60})
    assert answer.last["kind"] == "space"
    assert evicted(store, dst) == found, "nothing was written"
    assert call("stage", request).code == 0
    subprocess.run(["rm", "-r", dst], check=True)
    assert evicted(store, dst) is None, "that was not us"


def test_an_interrupted_staging_is_not_called_evicted(store: Path, dst: Path, make: Make) -> None:
    request = staged(store, dst, {"a.bin": make("a.bin", 40 * MIB)})
    evict(store, dst)
    process = start("stage", {**request, "bwlimit": 8 * MIB})
    until(lambda: list(dst.glob(".sparkbuild/a.bin*.part")))
    process.kill()
    finish(process)
    assert evicted(store, dst) is None


@pytest.mark.parametrize(
    "text", ["", "[", '{"at": 1}', "{0}", '{"format": "sparkbuild-evicted/v1", "dst": "/x", "at": 1, "for": "y"}']
)
def test_a_hostile_record_of_an_eviction_says_nothing(store: Path, dst: Path, make: Make, text: str) -> None:
    staged(store, dst, {"a.bin": make("a.bin", MIB)})
    evict(store, dst)
    path = Path(index.path_of(str(store), str(dst), index.EVICTED))
    right = json.loads(path.read_text())
    path.write_text(json.dumps(right | {"for": "\x1b[2J"}) if text == "{0}" else text)
    assert evicted(store, dst) is None


def test_an_export_that_went_with_its_mirror_says_so(site: Site) -> None:
    evict(site.store, site.mirror, **{"for": "stage:big"})
    for path, scheme in ((site.mirror, "staged"), (site.dst, "export")):
        found = evicted(site.store, path, scheme)
        assert found is not None
        assert found["for"] == "stage:big"


def test_room(store: Path, dst: Path) -> None:
    paths = [str(dst), "staged/x/y"]
    answer = call("facts", {"store": str(store), "queries": [{"scheme": "room", "paths": paths}]})
    rooms = answer.last["facts"][0]["rooms"]
    assert [rooms[path]["exists"] for path in paths] == [False, False]
    assert {rooms[path]["device"] for path in paths} == {str(store.stat().st_dev)}
    assert all(rooms[path]["free"] > 0 and rooms[path]["held"] == 0 for path in paths)
    dst.mkdir(parents=True)
    (dst / "a.bin").write_bytes(os.urandom(MIB))
    rooms = call("facts", {"store": str(store), "queries": [{"scheme": "room", "paths": paths}]}).last["facts"][0][
        "rooms"
    ]
    assert (rooms[str(dst)]["exists"], rooms[str(dst)]["held"]) == (True, MIB)
    assert rooms[str(dst)]["total"] > rooms[str(dst)]["free"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A mirror with an export, both in the index."""
    made = Site(tmp_path)
    mirrored = made.mirrored()
    made.made(made.tree())
    for dst, char, total in ((made.mirror, "b", mirrored["total"]), (made.dst, "e", 0)):
        _note(made.store, dst, char, total)
    return made


def _note(store: Path, dst: Path, char: str, total: int) -> None:
    noting.noted({"store": str(store), "key": key(char), "owner": OWNER}, str(dst), lambda: {"total": total})


def test_a_mirror_goes_with_its_exports(site: Site) -> None:
    (row,) = inventory(site.store)
    assert (row["exports"], row["kept"]) == ([str(site.dst)], 0)
    assert row["frees"] > 0
    (done,) = evict(site.store, site.mirror)
    assert (done["refused"], done["left"]) == ("", [])
    assert done["freed"] >= row["frees"]
    assert not site.mirror.exists()
    assert not site.dst.exists()
    assert inventory(site.store) == []


def test_a_lane_on_an_export_keeps_the_mirror(site: Site) -> None:
    request = {
        "store": str(site.store), "recipe": "other", "launch": "1", "rank": 0, "world_size": 1, "key": key(),
        "parts": {}, "argv": ["sleep", "600"], "env": {}, "host": "127.0.0.1", "port": 0, "model_id": "m",
        "protect": False, "uses": [str(site.dst)],
    }  # fmt: skip
    record = call("launch", request).last["record"]
    try:
        assert inventory(site.store)[0]["used"] == "lane other runs and uses it"
        assert evict(site.store, site.mirror)[0]["refused"] == "lane other runs and uses it"
        assert site.texts() == []
    finally:
        os.killpg(record["pid"], signal.SIGKILL)


def test_an_export_that_is_not_in_the_index_keeps_the_bytes(site: Site) -> None:
    index.forget(str(site.store), str(site.dst))
    (row,) = inventory(site.store)
    assert row["exports"] == []
    assert row["kept"] > row["frees"]


@pytest.mark.parametrize("at", range(1, 30, 2))
def test_a_kill_between_export_and_mirror(site: Site, at: int) -> None:
    shim = (
        "import os, signal\ncount = 0\n"
        "def watched(real):\n"
        "    def call(*args, **more):\n        global count\n        count += 1\n"
        f"        os.kill(os.getpid(), signal.SIGKILL) if count == {at} else None\n"
        "        return real(*args, **more)\n    return call\n"
        "for name in ('unlink', 'rmdir', 'rename', 'fsync'):\n    setattr(os, name, watched(getattr(os, name)))\n"
    )
    finish(start("evict", {"store": str(site.store), "dsts": [str(site.mirror)]}, shim=shim))
    assert not site.look()["present"] or site.texts() == []
    again = evict(site.store, site.dst, site.mirror)
    assert all(one["refused"] == "" or "not in the index" in one["refused"] for one in again)
    assert inventory(site.store) == []
    for folder in (site.mirror, site.dst):
        assert not folder.exists() or tree(folder) == []
