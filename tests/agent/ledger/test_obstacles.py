"""What a folder stands on: a disk that is not mounted, one that is read-only, folders of others, our own names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import draft, index, ledger, mountlist, obstacles, ownership, stamps
from sparkbuild.agent.stage import scrub
from sparkbuild.agent.wire import layout
from tests.agent.driver import call, look, request_for
from tests.agent.exports import Site
from tests.agent.machine.test_denied import STAGING

Make = Callable[[str, int], Path]
OWNER = {"recipe": "demo", "block": "data", "workspace": "here:/srv/w"}
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
AS_NOBODY = "import sparkbuild.agent.ledger.obstacles, sparkbuild.agent.machine.mounts, shlex; " + STAGING


class Disk:
    """A file system on `point`, which comes and goes."""

    def __init__(self, root: Path) -> None:
        self.image, self.point = root / "disk", root / "models"
        self.image.mkdir()
        self.point.mkdir()
        self.run("mount", "-t", "tmpfs", "none", str(self.image))
        self.mount()

    def mount(self, *options: str) -> None:
        self.run("mount", "--bind", str(self.image), str(self.point))
        if options:
            self.run("mount", "-o", ",".join(("remount", "bind", *options)), str(self.point))

    def unmount(self) -> None:
        self.run("umount", str(self.point))

    def run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no mount here: {done.stderr.decode().strip()}")

    def end(self) -> None:
        for path in (self.point, self.image):
            subprocess.run(["umount", path], capture_output=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    made = None
    try:
        made = Disk(tmp_path)
        yield made
    finally:
        if made is not None:
            made.end()


def refused(request: dict[str, Any], verb: str = "stage", **how: str) -> dict[str, str]:
    """The error of a run, which a look has told before, field by field."""
    scheme = {"stage": "staged", "linktree": "export"}[verb]
    query = {"scheme": scheme, "full": False, **request}
    fact = call("facts", {"store": request["store"], "queries": [query]}, **how).last["facts"][0]
    answer = call(verb, request, **how)
    assert answer.code == 1
    assert {**answer.last, "part": "dst"} == {"event": "error", **fact["refused"]}
    assert all(answer.last[name] for name in ("what", "where", "found", "wanted", "next"))
    return answer.last


@pytest.fixture
def request_(disk: Disk, make: Make, tmp_path: Path) -> dict[str, Any]:
    """What was staged onto the disk."""
    files = {"a.bin": make("a.bin", 5000)}
    request = request_for(disk.point / "mine/data", files, store=str(tmp_path / "store"), owner=OWNER)
    assert call("stage", request).code == 0
    return request


def test_a_disk_that_is_not_mounted(disk: Disk, request_: dict[str, Any]) -> None:
    disk.unmount()
    error = refused(request_)
    dst, record = request_["dst"], index.path_of(request_["store"], request_["dst"])
    assert error["what"] == "the disk that the folder was staged on is not mounted"
    assert error["where"] == dst
    assert error["found"].startswith(f"{dst} is on the ")
    assert error["wanted"] == f"the tmpfs that was mounted on {disk.point}"
    assert error["next"] == f"on that node: mount {disk.point}; or, when that disk is gone for good, rm {record}"
    assert os.listdir(disk.point) == []
    answer = call("evict", {"store": request_["store"], "docker": "", "dsts": [dst]})
    assert answer.last["folders"][0]["refused"] == f"its disk is not mounted on {disk.point}"
    assert refused(request_)  # the index still knows

    disk.mount()
    assert look(Path(dst), store=request_["store"])["problems"] == []
    assert call("stage", request_).last["copied"] == 0


def test_a_disk_that_is_gone_for_good(disk: Disk, request_: dict[str, Any]) -> None:
    disk.unmount()
    os.unlink(refused(request_)["next"].rpartition("rm ")[2])
    assert call("stage", request_).last["copied"] == 1
    entry = index.entry(request_["store"], request_["dst"])
    assert entry is not None
    assert entry.mount != str(disk.point)
    assert call("stage", {**request_, "full": True}).code == 0


def test_a_folder_that_is_whole_or_removed_is_no_trouble(disk: Disk, request_: dict[str, Any]) -> None:
    dst = Path(request_["dst"])
    subprocess.run(["rm", "-r", dst], check=True)
    assert call("stage", request_).last["copied"] == 1  # removed, and its disk is there
    subprocess.run(["cp", "-a", dst, disk.point.parent / "kept"], check=True)
    disk.unmount()
    dst.parent.mkdir()
    subprocess.run(["cp", "-a", disk.point.parent / "kept", dst], check=True)
    assert call("stage", request_).last["copied"] == 0  # moved with its ledger


def test_an_entry_from_before_knows_no_mount(disk: Disk, request_: dict[str, Any]) -> None:
    entry = index.entry(request_["store"], request_["dst"])
    assert entry is not None
    assert (entry.mount, entry.file_system) == (str(disk.point), "tmpfs")
    path = Path(index.path_of(request_["store"], request_["dst"]))
    text = path.read_text()
    path.write_text(text.replace(f',"mount":"{disk.point}","file_system":"tmpfs"', ""))
    assert path.read_text() != text
    found = index.entry(request_["store"], request_["dst"])
    assert found == entry._replace(mount="", file_system="")
    disk.unmount()
    assert call("stage", request_).code == 0


def test_an_export_too(disk: Disk) -> None:
    site = Site(disk.point)
    site.store = disk.point.parent / "store"
    site.mirrored(owner=OWNER)
    request = {**site.request(site.tree()), "owner": OWNER}
    assert call("linktree", request).code == 0
    disk.unmount()
    assert refused(request, "linktree")["wanted"] == f"the tmpfs that was mounted on {disk.point}"
    assert os.listdir(disk.point) == []


@pytest.mark.parametrize(
    ("path", "was", "now", "lost"),
    [
        ("/srv/models/a", "/srv/models", "/", True),
        ("/srv/models/a", "/srv/models", "/srv", True),
        ("/srv/models", "/srv/models", "/", True),
        ("/srv/models/a", "/srv/models", "/srv/models", False),
        ("/srv/models/a/b", "/srv/models", "/srv/models/a", False),  # a disk of its own by now
        ("/srv/modelsx/a", "/srv/models", "/", False),
        ("/mnt/new/a", "/srv/models", "/mnt/new", False),  # the link on the way leads there now
        ("/srv/models/a", "/", "/", False),
        ("/srv/models/a", "/", "/srv/models", False),
        ("/srv/models/a", "", "/", False),
        ("/srv/models/a", "/srv/models", "", False),  # no mountinfo
    ],
)
def test_mount_points(path: str, was: str, now: str, lost: bool) -> None:
    assert obstacles.is_lost(path, was, now) == lost


def test_a_read_only_file_system(disk: Disk, request_: dict[str, Any]) -> None:
    disk.unmount()
    disk.mount("ro")
    request = {**request_, "dst": str(disk.point / "other")}
    error = refused(request)
    assert (error["what"], error["where"]) == ("Read-only file system", request["dst"])
    assert error["found"] == f"the tmpfs mounted on {disk.point} is read-only"
    assert error["next"].startswith(f"on that node: sudo mount -o remount,rw {disk.point}; ")
    assert look(Path(request_["dst"]), store=request_["store"])["present"]  # what is whole is


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def by_nobody(place: Path, dst: str) -> dict[str, Any]:
    source, store = place / "source", place / "store"
    source.mkdir()
    (source / "a.bin").write_bytes(b"a" * 1000)
    store.mkdir()
    os.chown(store, 65534, 65534)
    files = {"a.bin": source / "a.bin"}
    return request_for(Path(dst), files, store=str(store))


@ROOT_ONLY
def test_a_folder_that_may_not_be_made(place: Path) -> None:
    dst = f"{place}/x/y"
    error = refused(by_nobody(place, dst), shim=AS_NOBODY)
    assert (error["what"], error["where"]) == ("Permission denied", dst)
    assert error["found"] == f"{place} belongs to root, drwxr-xr-x; we are nobody"
    assert error["next"] == f"on that node: sudo install -d -o nobody {dst}, or correct `dst` (of an export, `path`)"


@ROOT_ONLY
def test_a_folder_in_the_root(place: Path) -> None:
    error = refused(by_nobody(place, "/root-only/x"), shim=AS_NOBODY)
    assert error["found"].startswith("/ belongs to root, ")
    assert error["next"].startswith("on that node: sudo install -d -o nobody /root-only/x, or ")
    assert not os.path.lexists("/root-only")


@ROOT_ONLY
@pytest.mark.parametrize("name", ["", "/.sparkbuild", "/.sparkbuild/lock"])
def test_what_is_there_and_of_somebody_else(place: Path, name: str) -> None:
    dst = place / "x"
    (dst / ".sparkbuild").mkdir(parents=True)
    (dst / ".sparkbuild/lock").touch()
    for path in (dst, dst / ".sparkbuild", dst / ".sparkbuild/lock"):
        os.chown(path, 65534, 65534)
    os.chown(f"{dst}{name}", 0, 0)
    error = refused(by_nobody(place, str(dst)), shim=AS_NOBODY)
    assert error["found"].startswith(f"{dst}{name} belongs to root, ")
    assert error["next"] == f"on that node: let nobody use {dst}{name}"


@ROOT_ONLY
def test_what_may_not_be_looked_at_is_told_in_words(place: Path) -> None:
    dst = place / "x"
    (dst / ".sparkbuild").mkdir(parents=True, mode=0o700)
    query = {"scheme": "staged", "full": False, **by_nobody(place, str(dst))}
    fact = call("facts", {"store": query["store"], "queries": [query]}, shim=AS_NOBODY).last["facts"][0]
    ledger_ = f"{dst}/.sparkbuild"
    assert fact["problem"].startswith(f"Permission denied: {ledger_}/")
    assert fact["problem"].endswith(f"({ledger_} belongs to root, drwx------; we are nobody)")
    assert fact["refused"]["next"] == f"on that node: let nobody use {ledger_}"


@ROOT_ONLY
def test_what_may_not_be_looked_at_in_the_store_is_told_in_words(place: Path) -> None:
    store = place / "store"
    (store / "artifacts").mkdir(parents=True, mode=0o700)
    os.chmod(store / "artifacts", 0o700)
    query = {"scheme": "artifact", "sha256": "a" * 64, "filename": "x.bin"}
    shim = f"import sparkbuild.agent.store.artifacts; {AS_NOBODY}"
    fact = call("facts", {"store": str(store), "queries": [query]}, shim=shim).last["facts"][0]
    assert fact == {
        "present": False,
        "problem": f"Permission denied: {store}/artifacts/aa/{'a' * 64}/x.bin ({store}/artifacts belongs to root, "
        f"drwx------; we are nobody); on that node: sudo chown -R nobody: {store}",
    }


@pytest.mark.parametrize("kind", ["folder", "link"])
@pytest.mark.parametrize("name", layout.BESIDE)
def test_a_name_of_ours_that_is_something_else(dst: Path, make: Make, tmp_path: Path, name: str, kind: str) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 1000)}, store=str(tmp_path / "store"), owner=OWNER)
    path = dst / ".sparkbuild" / name
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/nowhere")
    error = refused(request)
    assert error["where"] == str(path)
    assert error["found"] == {"folder": "a folder", "link": "a symbolic link"}[kind]
    assert (error["wanted"], error["next"]) == ("a file, or nothing yet", "move it away")
    assert os.listdir(path.parent) == [name]


@pytest.mark.parametrize("kind", ["a file", "a symbolic link"])
def test_our_folder_that_is_something_else(dst: Path, make: Make, tmp_path: Path, kind: str) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 1000)}, store=str(tmp_path / "store"))
    dst.mkdir(parents=True)
    ours = dst / ".sparkbuild"
    if kind == "a file":
        ours.write_text("mine")
    else:
        ours.symlink_to(tmp_path)
    error = refused(request)
    assert (error["where"], error["found"]) == (str(ours), kind)
    assert (error["wanted"], error["next"]) == ("a folder, or nothing yet", "move it away")


def test_all_names_of_ours_are_known() -> None:
    own = [
        ledger.path_of("/d"),
        stamps.path_of("/d"),
        scrub.path_of("/d"),
        ownership.path_of("/d"),
        mountlist.path_of("/d"),
    ]
    assert {os.path.basename(path) for path in (*own, draft.Draft("/d").path)} < set(layout.BESIDE)
