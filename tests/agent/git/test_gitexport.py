"""Sources, of real repositories and a real git server: fetched once, checked, the same bytes; every way it fails."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import Answer, call, finish, start
from tests.agent.gitserver import Repo, Server, key_of, pin, serving
from tests.agent.test_pythons import pythons

FILES = {
    "README": "one\n",
    "run.sh": "#!/bin/sh\n",
    "deep/er/data.bin": bytes(range(256)),
    "subst.txt": "$Format:%H$ $Id$\n",
    "hidden.txt": "not to be left out\n",
    ".gitattributes": "hidden.txt export-ignore\nsubst.txt export-subst ident\nREADME text eol=crlf\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "repos" / "engine")
    made.put(FILES)
    (made.path / "run.sh").chmod(0o755)
    (made.path / "link").symlink_to("deep/er")
    made.commit(message="first")
    made.git("tag", "v1")
    return made


class Store:
    """A node's store, and calls of the agent on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "store"

    def request(self, source: dict[str, Any], **more: Any) -> dict[str, Any]:
        common = {"store": str(self.path), "root": str(self.root), "lock": "eng"}
        return {**common, "key": key_of(source), "source": source, **more}

    def export(self, source: dict[str, Any], shim: str = "", python: str = sys.executable) -> Answer:
        return call("source", self.request(source), shim=shim, python=python)

    def made(self, source: dict[str, Any]) -> Path:
        answer = self.export(source)
        assert answer.code == 0, answer.last
        return self.archive(source)

    def archive(self, source: dict[str, Any]) -> Path:
        key = key_of(source)
        return self.path / "sources" / key[:2] / key / "source.tar"

    def look(self, source: dict[str, Any]) -> dict[str, Any]:
        query = {"scheme": "source", "key": key_of(source), "pins": []}
        fact: dict[str, Any] = call("facts", {"store": str(self.path), "queries": [query]}).last["facts"][0]
        return fact

    def nothing_left(self, source: dict[str, Any]) -> bool:
        folder = self.archive(source).parent
        return {path.name for path in folder.iterdir()} <= {".lock"} and not self.look(source)["present"]

    @property
    def mirrors(self) -> list[Path]:
        return sorted((self.path / "mirrors").glob("*.git"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def members(path: Path) -> dict[str, tuple[str, int, int]]:
    """Name to content or target, mode, time."""
    with tarfile.open(path, errors="surrogateescape") as archive:
        found = {}
        for member in archive:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            file = archive.extractfile(member) if member.isreg() else None
            text = file.read().decode(errors="replace") if file else member.linkname
            found[member.name] = (text, member.mode, int(member.mtime))
        return found


def test_exactly_the_trees_bytes(repo: Repo, store: Store):
    source = pin(repo)
    found = members(store.made(source))
    assert list(found) == sorted(found)
    assert found["subst.txt"][0] == "$Format:%H$ $Id$\n"
    assert found["README"] == ("one\n", 0o644, source["time"])
    assert found["run.sh"][1:] == (0o755, source["time"])
    assert found["link"][0] == "deep/er"
    assert {"hidden.txt", "deep/er/data.bin"} <= set(found)
    fact = store.look(source)
    assert fact["present"]
    assert (fact["content"], fact["files"]) == (source["tree"], 7)


@pytest.mark.parametrize("python", pythons())
def test_the_same_bytes_from_every_python(repo: Repo, store: Store, tmp_path: Path, python: str):
    repo.commit({"p\u00e4th/" + "n" * 120: "x" * 700})
    here = store.made(pin(repo))
    other = Store(tmp_path / "other")
    answer = other.export(pin(repo), python=python)
    assert answer.code == 0, answer.last
    assert other.archive(pin(repo)).read_bytes() == here.read_bytes()


def test_the_same_bytes_from_another_clone_and_another_history(repo: Repo, store: Store, tmp_path: Path):
    first = pin(repo, time=1_600_000_000)
    other = Repo(tmp_path / "repos" / "other")
    other.commit({"x": "y"})
    other.git("fetch", "-q", str(repo.path), "main")
    other.git("read-tree", "-u", "--reset", "FETCH_HEAD")
    rebased = pin(other, other.commit(message="the same content"), time=0)
    assert rebased["tree"] == first["tree"]
    assert rebased["commit"] != first["commit"]
    one = store.made({**first, "time": 0})
    two = store.made(rebased)
    names = [[(name, *rest[:2]) for name, rest in members(path).items()] for path in (one, two)]
    assert names[0] == names[1]
    again = Store(tmp_path / "again")
    assert again.made({**first, "time": 0}).read_bytes() == one.read_bytes()


def test_fetched_once_then_offline(repo: Repo, store: Store):
    source = pin(repo)
    store.made(source)
    gone = repo.path.rename(repo.path.with_name("moved"))
    assert store.look(source)["present"]
    shutil.rmtree(store.archive(source).parent)
    assert not store.look(source)["present"]
    answer = store.export(source)
    assert answer.code == 0
    assert "fetch" not in answer.logs
    gone.rename(repo.path)
    other = pin(repo, repo.commit({"new": "1"}))
    store.made(other)
    assert len(store.mirrors) == 1
    shutil.rmtree(store.archive(source).parent)
    repo.path.rename(repo.path.with_name("moved"))
    store.made(source)  # the older commit is still there


def test_history_and_other_files_are_not_fetched(repo: Repo, store: Store):
    repo.commit({"big": os.urandom(3_000_000)})
    (repo.path / "big").unlink()
    store.made(pin(repo, repo.commit(message="smaller")))
    size = sum(path.stat().st_size for path in store.mirrors[0].rglob("*") if path.is_file())
    assert size < 500_000


@pytest.mark.parametrize("wrong", ["", "old", "dumb"])
def test_every_kind_of_server(repo: Repo, store: Store, wrong: str):
    """One that gives out any commit; one of protocol 0, which gives out tips of refs; one of plain files."""
    old = pin(repo, "v1^{commit}" if wrong == "" else repo.git("rev-parse", "v1"))
    old["commit"] = repo.git("rev-parse", "v1")
    repo.commit({"more": "x"})
    repo.git("update-server-info")
    with serving(repo.path.parent) as server:
        server.wrong = wrong
        source = {**old, "repository": f"{server.url}/engine/.git"}
        assert members(store.made(source))["README"][0] == "one\n"


def test_an_older_commit_of_a_mirrored_branch(repo: Repo, store: Store):
    """The newest came without its history; the server must be told that what is older is not here."""
    first = pin(repo)
    last = pin(repo, repo.commit({"more": "x"}))
    repo.git("tag", "-d", "v1")
    with serving(repo.path.parent) as server:
        server.wrong = "old"  # it gives out tips of refs alone
        url = f"{server.url}/engine/.git"
        store.made({**last, "repository": url})
        assert "more" not in members(store.made({**first, "repository": url}))


# -- what goes wrong ------------------------------------------------------------------------------------------------


def failed(answer: Answer, kind: str) -> str:
    assert answer.code == 1, answer.events
    error = answer.last
    assert error["kind"] == kind, error
    return "\n".join(f"{name}: {error[name]}" for name in ("what", "where", "found", "wanted", "next"))


def test_another_tree_under_the_commit(repo: Repo, store: Store):
    source = pin(repo, tree="1" * 40)
    text = failed(store.export(source), "integrity")
    assert "engine: the commit has another tree than the lock says" in text
    assert repo.tree() in text
    assert store.nothing_left(source)
    assert "another time" in failed(store.export(pin(repo, time=5)), "integrity")


def test_a_ref_that_moved(repo: Repo, store: Store):
    """Rewritten, and the old commit collected: the lock names what nobody has any more."""
    source = pin(repo)
    repo.git("tag", "-d", "v1")
    repo.git("commit", "-q", "--amend", "--allow-empty", "-m", "rewritten")
    now = repo.git("rev-parse", "HEAD")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    text = failed(store.export(source), "gone")
    assert f"commit {source['commit']} is not in the repository" in text
    assert f"`main` is at {now} now" in text
    assert "doit lock:update eng engine=main" in text
    assert store.nothing_left(source)


def test_a_commit_that_never_was(repo: Repo, store: Store):
    source = pin(repo, ref="")
    source["commit"] = "2" * 40
    assert "it has no such commit" in failed(store.export(source), "gone")
    assert "`gone` is gone too" in failed(store.export({**source, "ref": "gone"}), "gone")


def test_a_tag_object_is_no_commit(repo: Repo, store: Store):
    source = pin(repo)
    repo.git("tag", "-a", "v2", "-m", "annotated")
    source["commit"] = repo.git("rev-parse", "v2")
    assert "is not a commit: it is a tag's own object" in failed(store.export(source), "config")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("404", "there is no such repository"),
        ("401", "the repository wants a login that this node does not have"),
        ("500", "the repository cannot be reached"),
        ("nonsense", "what answers there is no git server"),
        ("cut", "the answer was cut off"),
    ],
)
def test_servers_that_fail(repo: Repo, store: Store, wrong: str, text: str):
    repo.commit({"data": os.urandom(100_000)})
    with serving(repo.path.parent) as server:
        server.wrong = wrong
        source = pin(repo, repository=f"{server.url}/engine/.git")
        assert text in failed(store.export(source), "gone" if wrong == "404" else "node")
        assert store.nothing_left(source)
        server.wrong = ""
        store.made(source)  # and it goes on when the server is well again


@pytest.mark.parametrize("number", ["401", "403", "404"])
def test_a_number_in_a_url_is_no_answer(repo: Repo, store: Store, number: str):
    with serving(repo.path.parent) as server:
        server.wrong = "500"
        answer = store.export(pin(repo, repository=f"{server.url}/engine{number}/.git"))
        assert "the repository cannot be reached" in failed(answer, "node")


def test_repository_gone(repo: Repo, store: Store):
    text = failed(store.export(pin(repo, repository="file:///nonexistent/engine")), "gone")
    assert "there is no such repository" in text
    with socket.socket() as closed:  # bound and not listening: a port that was let go is soon another test's server
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/engine/.git"
        assert "the repository cannot be reached" in failed(store.export(pin(repo, repository=url)), "node")


def test_no_git(repo: Repo, store: Store):
    answer = store.export(pin(repo), shim="import os; os.environ['PATH'] = '/nonexistent'")
    text = failed(answer, "node")
    assert "git is not installed on this node" in text
    assert "apt-get install git" in text


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no HEAD", "emptied", "leftovers"])
def test_a_damaged_mirror_is_made_anew(repo: Repo, store: Store, damage: str):
    source = pin(repo)
    expected = store.made(source).read_bytes()
    shutil.rmtree(store.archive(source).parent)
    mirror = store.mirrors[0]
    files = [path for path in (mirror / "objects").rglob("*") if path.is_file() and path.suffix in {"", ".pack"}]
    victim = max(files, key=lambda path: path.stat().st_size)
    if damage == "leftovers":
        (mirror / "shallow.lock").touch()
        (mirror / "objects" / "pack").mkdir(exist_ok=True)
        (mirror / "objects" / "pack" / "tmp_pack_x").write_bytes(b"x")
        shutil.rmtree(mirror / "refs" / "sparkbuild")
        (mirror / "packed-refs").unlink(missing_ok=True)
    elif damage == "no HEAD":
        (mirror / "HEAD").unlink()
    elif damage == "emptied":
        shutil.rmtree(mirror / "objects")
        (mirror / "objects").mkdir()
    else:
        victim.chmod(0o644)
        data = bytearray(victim.read_bytes())
        if damage == "truncated":
            del data[len(data) // 2 :]
        else:
            data[len(data) // 2] ^= 0x20
        victim.write_bytes(data)
    assert store.made(source).read_bytes() == expected
    assert not list(mirror.rglob("*.lock"))


def test_a_mirror_that_lies_to_git(repo: Repo, store: Store):
    """An object under another's name, as a bad disk or a bad friend leaves it: git itself does not look."""
    source = pin(repo)
    store.made(source)
    shutil.rmtree(store.archive(source).parent)
    mirror = store.mirrors[0]
    packs = list((mirror / "objects" / "pack").glob("*.pack"))
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(mirror)}
    for pack in packs:  # loose, so that one can be replaced
        moved = pack.rename(mirror / "moved.pack")
        pack.with_suffix(".idx").unlink()
        subprocess.run(["git", "unpack-objects", "-q"], env=env, stdin=moved.open("rb"), check=True)
    oid = repo.git("rev-parse", "HEAD:README")
    other = repo.blob(b"two\n")
    lie = mirror / "objects" / oid[:2] / oid[2:]
    lie.chmod(0o644)
    lie.write_bytes((repo.path / ".git" / "objects" / other[:2] / other[2:]).read_bytes())
    answer = store.export(source)
    assert answer.code == 0
    assert "a mirror is broken" in answer.logs
    assert members(store.archive(source))["README"][0] == "one\n"


def test_an_archive_that_was_changed(repo: Repo, store: Store):
    source = pin(repo)
    path = store.made(source)
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    fact = store.look(source)
    assert (fact["present"], fact["problem"]) == (False, "its content is not what was exported")
    store.made(source)
    assert store.look(source)["present"]


# -- what a tree may not hold -----------------------------------------------------------------------------------------


def test_lfs_pointers(repo: Repo, store: Store):
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12\n"
    repo.commit({"weights/model.bin": pointer, "text": "version https://git-lfs.github.com/spec/v1 is a URL"})
    source = pin(repo)
    text = failed(store.export(source), "config")
    assert "engine has files that are kept outside of git (LFS)" in text
    assert "found: weights/model.bin\n" in text
    assert "engine.lfs=pointers" in text
    assert store.nothing_left(source)
    assert members(store.made({**source, "lfs": "pointers"}))["weights/model.bin"][0] == pointer


@pytest.fixture
def nested(repo: Repo, tmp_path: Path) -> tuple[Repo, Repo, Repo]:
    inner = Repo(tmp_path / "repos" / "inner")
    inner.commit({"i": "inner\n"})
    outer = Repo(tmp_path / "repos" / "outer")
    outer.commit({"o": "outer\n"})
    outer.git("submodule", "add", "-q", "../inner", "in")
    outer.commit(message="with inner")
    repo.git("submodule", "add", "-q", "../outer", "third/outer")
    repo.commit(message="with outer")
    return repo, outer, inner


def module(path: str, other: Repo) -> dict[str, str]:
    return {"path": path, "repository": other.url, "commit": other.git("rev-parse", "HEAD"), "tree": other.tree()}


def test_submodules(nested: tuple[Repo, Repo, Repo], store: Store):
    repo, outer, inner = nested
    source = pin(repo)
    text = failed(store.export(source), "config")
    assert "engine has submodules that the lock does not have" in text
    assert f"third/outer (at {outer.git('rev-parse', 'HEAD')})" in text
    assert "doit lock:update eng engine=main" in text

    source["submodules"] = [module("third/outer", outer)]
    assert "third/outer/in (at" in failed(store.export(source), "config")

    source["submodules"] = [module("third/outer", outer), module("third/outer/in", inner)]
    found = members(store.made(source))
    assert found["third/outer/o"][0] == "outer\n"
    assert found["third/outer/in/i"] == ("inner\n", 0o644, source["time"])
    assert len(store.mirrors) == 3

    wrong = {**source, "submodules": [{**source["submodules"][0], "tree": "3" * 40}, source["submodules"][1]]}
    assert "submodule third/outer: the commit has another tree" in failed(store.export(wrong), "integrity")
    outer.commit({"o": "newer\n"})
    wrong = {**source, "submodules": [module("third/outer", outer), module("third/outer/in", inner)]}
    assert "locked to another commit than the tree names" in failed(store.export(wrong), "integrity")
    wrong = {**source, "submodules": [*source["submodules"], module("nowhere", inner)]}
    text = failed(store.export(wrong), "config")
    assert "the lock has a submodule that the tree does not have" in text
    assert "nowhere" in text


def patch(repo: Repo, name: str, text: str | None = None) -> dict[str, str]:
    content = (text if text is not None else repo.git("diff", "--binary", "HEAD") + "\n").encode()
    digest = hashlib.sha256(content).hexdigest()
    return {"path": name, "sha256": digest, "text": base64.b64encode(content).decode()}


def test_patches(repo: Repo, store: Store):
    repo.put({"README": "two\n"})
    first = patch(repo, "patches/1.diff")
    source = pin(repo, patches=[first])
    repo.put({"README": "three\n"})
    path = store.made(source)
    assert members(path)["README"] == ("two\n", 0o644, source["time"])
    assert store.look(source)["content"] != source["tree"]
    expected = path.read_bytes()
    assert Store(store.root / "again").made(source).read_bytes() == expected
    twice = pin(repo, patches=[first, first])
    text = failed(store.export(twice), "config")
    assert "patches/1.diff does not fit engine" in text
    assert "patch does not apply" in text
    forged = pin(repo, patches=[{**first, "sha256": "0" * 64}])
    assert "patches/1.diff is not what the lock pins" in failed(store.export(forged), "integrity")
    assert store.nothing_left(forged)


@pytest.mark.parametrize("name", ["../out", ".git/config", "link/../../out"])
def test_patches_that_lead_out(repo: Repo, store: Store, name: str):
    text = f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    source = pin(repo, patches=[patch(repo, "p.diff", text)])
    assert "does not fit" in failed(store.export(source), "config")
    assert store.nothing_left(source)


TRICKS = {
    "up": [("100644", b"..")],
    "here": [("100644", b".")],
    "git folder": [("40000", b".git")],
    "git folder in capitals": [("100644", b".GIT")],
    "git folder by its short name": [("100644", b"git~1")],
    "git folder with what HFS ignores": [("100644", ".g\u200cit".encode())],
    "slash": [("100644", b"a/b")],
    "empty": [("100644", b"")],
    "newline": [("100644", b"a\nb")],
    "twice": [("100644", b"a"), ("100644", b"a")],
    "file and folder": [("100644", b"a"), ("40000", b"a")],
    "device": [("20644", b"null")],
    "absolute link": [("120000", b"link:/etc/passwd")],
    "link out": [("120000", b"link:../secret")],
    "link out by another": [("120000", b"link:other/../../x"), ("120000", b"other:.")],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_path_tricks(repo: Repo, store: Store, trick: str):
    items = []
    for mode, name in TRICKS[trick]:
        if mode == "120000":
            name, _, target = name.partition(b":")  # noqa: PLW2901
            items.append((mode, name, repo.blob(target)))
        elif mode == "40000":
            items.append((mode, name, repo.raw_tree(("100644", b"x", repo.blob(b"x")))))
        else:
            items.append((mode, name, repo.blob(b"x")))
    source = pin(repo, repo.commit_tree(repo.raw_tree(*items)), tree="", time=0)
    answer = store.export(source)
    assert answer.code == 1
    assert answer.last["kind"] in {"integrity", "node"}  # git itself refuses some
    assert store.nothing_left(source)


def test_links_that_stay_inside(repo: Repo, store: Store):
    for name, target in {"a": "deep", "deep/up": "../README", "deep/er/loop": "loop", "dangling": "nowhere"}.items():
        (repo.path / name).symlink_to(target)
    repo.commit()
    assert members(store.made(pin(repo)))["deep/up"][0] == "../README"


def test_a_tree_that_grows_without_end(repo: Repo, store: Store):
    """Ten levels that each name the one below a hundred times: twelve objects, 10^20 files."""
    tree = repo.raw_tree(("100644", b"x", repo.blob(b"x")))
    for _ in range(10):
        tree = repo.raw_tree(*[("40000", f"{n:03}".encode(), tree) for n in range(100)])
    source = pin(repo, repo.commit_tree(tree), tree="", time=0)
    # git's own check of what it fetched would visit each tree once
    text = failed(store.export(source, shim="import sparkbuild.agent.git.tree as t; t.ENTRIES = 20_000"), "integrity")
    assert "more than 20000 files" in text


# -- several at once, and killed ---------------------------------------------------------------------------------------


def test_several_at_once(repo: Repo, store: Store):
    """Of one repository, other commits; and of one source, the same twice."""
    sources = [pin(repo)] + [pin(repo, repo.commit({"n": str(n)})) for n in range(3)]
    with serving(repo.path.parent) as server:
        sources = [{**source, "repository": f"{server.url}/engine/.git"} for source in sources]
        running = [start("source", store.request(source)) for source in sources]
        answers = [finish(process) for process in running]
    assert [answer.code for answer in answers] == [0] * 4, [answer.last for answer in answers]
    assert any("waiting for another fetch" in answer.logs for answer in answers)
    assert all(store.look(source)["present"] for source in sources)


@pytest.mark.parametrize("phase", ["fetch", "export"])
def test_killed_in_the_middle(repo: Repo, store: Store, phase: str):
    repo.commit({f"data/{n}": os.urandom(200_000) for n in range(20)})
    with serving(repo.path.parent) as server:
        source = pin(repo, repository=f"{server.url}/engine/.git")
        slow = "import sparkbuild.agent.git.archive as t, time; keep = t._add\n"
        slow += "def add(*a): time.sleep(0.2); keep(*a)\nt._add = add"
        stall(server, phase)
        process = start("source", store.request(source), shim=slow if phase == "export" else "")
        wait_for(lambda: begun(store, source, phase), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        server.delay = 0.0
        assert not store.look(source)["present"]
        assert members(store.made(source))["README"][0] == "one\n"
    assert {path.name for path in store.archive(source).parent.iterdir()} == {
        ".lock",
        "receipt.json",
        "source.tar",
        "source.tar.stamp",
    }


def stall(server: Server, phase: str) -> None:
    server.delay = 2.0 if phase == "fetch" else 0.0


def begun(store: Store, source: dict[str, Any], phase: str) -> bool:
    if phase == "export":
        return (store.archive(source).parent / "source.tar.part").exists()
    return bool(store.mirrors)


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


def test_nothing_of_the_users_settings(repo: Repo, store: Store, tmp_path: Path):
    """Neither ~/.gitconfig nor variables nor a template's hooks have a say."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        '[url "file:///nonexistent/"]\n\tinsteadOf = file:///\n[core]\n\tautocrlf = true\n\thooksPath = /nonexistent\n'
        "[init]\n\ttemplateDir = /nonexistent\n[fetch]\n\tfsckObjects = true\n"
    )
    shim = f"import os; os.environ.update(HOME={str(home)!r}, GIT_DIR='/nonexistent', GIT_OBJECT_DIRECTORY='/x')"
    answer = store.export(pin(repo), shim=shim)
    assert answer.code == 0, answer.last


def test_what_was_exported_of_another_commit_is_not_what_the_lock_says(repo: Repo, store: Store) -> None:
    """The key has the tree alone: a wrong time or commit beside it would pass here and be refused by a new machine."""
    source = pin(repo)
    store.made(source)
    pins = [[source["commit"], source["time"]]]
    query = {"scheme": "source", "key": key_of(source)}

    def looked(pins: list[list[Any]]) -> dict[str, Any]:
        request = {"store": str(store.path), "queries": [{**query, "pins": pins}]}
        fact: dict[str, Any] = call("facts", request).last["facts"][0]
        return fact

    assert looked(pins)["present"]
    assert looked([[source["commit"], 0]])["present"]
    wrong = looked([[source["commit"], 5]])
    assert not wrong["present"]
    assert f"is of {source['time']}, and the lock says 5" in wrong["problem"]
    assert "from another commit" in looked([["9" * 40, 0]])["problem"]
    assert "another time" in failed(store.export({**source, "time": 5}), "integrity")
