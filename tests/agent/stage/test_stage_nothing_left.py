"""A staging that fails before anything was written leaves nothing: no folder, no lock, no entry of the index."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import index
from tests.agent.driver import MIB, Answer, call, entry, finish, list_of, look, request_for, start, tree
from tests.agent.exports import Site

Make = Callable[[str, int], Path]
OWNER = {"recipe": "big", "block": "weights", "workspace": "here:/srv/w"}
# what is imported later may lie where only root may read
NOBODY = (
    "import os, pwd, sparkbuild.agent.main, sparkbuild.agent.machine.denied, "
    "sparkbuild.agent.machine.mounts, sparkbuild.agent.stage.stage; "
    "os.seteuid(65534)"
)
MUCH = 1 << 60  # bytes that no disk has


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def failed(request: dict[str, Any], store: Path, shim: str = "") -> Answer:
    answer = call("stage", {**request, "store": str(store), "owner": OWNER}, shim=shim)
    assert answer.code == 1, answer.events
    return answer


def left(root: Path) -> list[str]:
    """All that is in a folder, folders too."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def requests(tmp_path: Path, dst: Path, make: Make) -> dict[str, dict[str, Any]]:
    source = make("a.bin", MIB)
    return {
        "no room": list_of(dst, [entry("deep/a.bin", source)], min_free=MUCH),
        "source missing": list_of(dst, [entry("deep/a.bin", tmp_path / "nowhere.bin")]),
        # looked at by its size in a list of the source's, and not there when it is to be copied
        "source gone": list_of(dst, [entry("deep/a.bin", tmp_path / "nowhere.bin", size=MIB)], {"deep/b": "a.bin"}),
        "source of another size": list_of(dst, [entry("deep/a.bin", source, size=7)]),
        "source with other content": list_of(dst, [entry("deep/a.bin", source, sha256="0" * 64)]),
        "name that cannot be": list_of(dst, [entry("../a.bin", source)]),
    }


CASES = ("no room", "source missing", "source gone", "source of another size", "source with other content")


@pytest.mark.parametrize("why", [*CASES, "name that cannot be"])
def test_nothing_is_left(tmp_path: Path, store: Path, make: Make, why: str) -> None:
    dst = tmp_path / "models/deep/er"
    failed(requests(tmp_path, dst, make)[why], store)
    assert not dst.parents[1].exists()
    assert left(store) in ([], ["staged-index"])


@pytest.mark.parametrize("why", CASES)
def test_what_was_there_stays(tmp_path: Path, store: Path, make: Make, why: str) -> None:
    """A folder that the operator made, perhaps since we may not; what others have in it."""
    dst = tmp_path / "models"
    (dst / "theirs").mkdir(parents=True)
    (dst / "theirs/notes.txt").write_text("mine")
    failed(requests(tmp_path, dst, make)[why], store)
    assert left(dst) == ["theirs", "theirs/notes.txt"]
    assert left(store) in ([], ["staged-index"])
    (tmp_path / "empty").mkdir()
    failed(requests(tmp_path, tmp_path / "empty", make)[why], store)
    assert left(tmp_path / "empty") == []


@pytest.mark.parametrize("closed", ["destination", "index"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_who_may_not_write_leaves_nothing(closed: str) -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own are closed to others
        root = Path(made)
        root.chmod(0o755)
        (root / "a.bin").write_bytes(bytes(MIB))
        for name, open_to_all in (("models", closed == "index"), ("store", closed == "destination")):
            (root / name).mkdir()
            (root / name).chmod(0o777 if open_to_all else 0o755)
        request = request_for(root / "models/deep/er", {"a.bin": root / "a.bin"})
        answer = failed(request, root / "store", shim=NOBODY)
        assert answer.last["what"] == "Permission denied"
        assert (left(root / "models"), left(root / "store")) == ([], [])


def test_what_was_staged_before_is_still_whole(tmp_path: Path, store: Path, make: Make) -> None:
    dst = tmp_path / "models"
    request = request_for(dst, {"a.bin": make("a.bin", MIB)}, store=str(store), owner=OWNER)
    assert call("stage", request).code == 0
    before = tree(dst)
    failed(request_for(dst, {"b.bin": make("b.bin", MIB)}, "b", min_free=MUCH), store)
    assert tree(dst) == before
    assert look(dst)["problems"] == []
    found = index.entry(str(store), str(dst))
    assert found is not None
    assert (found.key[0], found.before[0]) == ("b", "a"), "and may be evicted: its ledger is one of these"


def test_what_was_begun_is_kept(tmp_path: Path, store: Path, make: Make) -> None:
    dst = tmp_path / "models"
    files = [entry("a.bin", make("a.bin", MIB)), entry("b.bin", tmp_path / "nowhere.bin", size=MIB)]
    failed({**list_of(dst, files), "streams": 1}, store)
    assert (dst / "a.bin").exists()
    assert index.entry(str(store), str(dst)) is not None
    again = {**list_of(dst, [files[0], entry("b.bin", make("b.bin", MIB))]), "store": str(store), "owner": OWNER}
    done = call("stage", again)
    assert (done.code, done.last["copied"]) == (0, 1)


def test_who_waits_while_another_one_fails_stages(tmp_path: Path, store: Path, make: Make) -> None:
    """The lock that they wait for is removed, and so is the folder that it was in."""
    dst = tmp_path / "deep/models"
    request = request_for(dst, {"a.bin": make("a.bin", MIB)}, store=str(store), owner=OWNER)
    slow = (
        "import time\nfrom sparkbuild.agent.stage import stage\nreal = stage._Staging._check_room\n"
        "def late(*args):\n    time.sleep(0.05)\n    return real(*args)\nstage._Staging._check_room = late\n"
    )
    other = request_for(dst, {"b.bin": make("b.bin", MIB)}, "b", store=str(store), owner=OWNER, min_free=MUCH)
    failing = [start("stage", other, shim=slow) for _ in range(4)]
    staging = [start("stage", request, shim=slow) for _ in range(2)]
    assert [finish(process).code for process in failing] == [1, 1, 1, 1]
    done = [finish(process) for process in staging]
    assert [one.code for one in done] == [0, 0], [one.events for one in done]
    assert look(dst)["problems"] == []
    assert index.entry(str(store), str(dst)) is not None


def test_an_export_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mirrored()
    site.dst.mkdir(parents=True)
    (site.dst / "notes.txt").write_text("mine")
    assert "holds what is not of it" in site.refused(site.tree(), owner=OWNER)["what"]
    assert left(site.dst) == ["notes.txt"]
    assert index.entries(str(site.store)) == []
    (site.dst / "notes.txt").unlink()
    site.dst.rmdir()
    site.made(site.tree(), owner=OWNER)
    assert [one.dst for one in index.entries(str(site.store))] == [str(site.dst)]
