"""What a lock would pin, asked of real repositories: refs, commits, submodules, and what is new since the old pin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.git.pins import joined
from tests.agent.driver import Answer, call
from tests.agent.gitserver import Repo, serving


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "repos" / "engine")
    made.commit({"a": "1"}, "first")
    made.git("tag", "-a", "v1", "-m", "annotated")
    made.commit({"a": "2"}, "second")
    made.commit({"a": "3"}, "third: with\ttab and \x1b[31mcolour")
    return made


def ask(tmp_path: Path, action: str, url: str, **more: Any) -> Answer:
    return call("pins", {"store": str(tmp_path / "store"), "root": str(tmp_path), "action": action, "url": url, **more})


def pinned(tmp_path: Path, url: str, ref: str, old: str = "") -> dict[str, Any]:
    answer = ask(tmp_path, "pin", url, ref=ref, old=old)
    assert answer.code == 0, answer.last
    return answer.last


@pytest.mark.parametrize("wrong", ["", "old"])
def test_a_branch_with_what_is_new(repo: Repo, tmp_path: Path, wrong: str):
    with serving(repo.path.parent) as server:
        server.wrong = wrong
        found = pinned(tmp_path, f"{server.url}/engine/.git", "main", repo.git("rev-parse", "v1^{commit}"))
    assert (found["commit"], found["tree"], found["time"]) == (repo.git("rev-parse", "HEAD"), repo.tree(), repo.time)
    assert found["count"] == 2
    assert [text.split(" ", 1)[1] for text in found["subjects"]] == ["third: with tab and  [31mcolour", "second"]
    assert found["submodules"] == []


def test_tags_commits_and_what_went_back(repo: Repo, tmp_path: Path):
    first, last = repo.git("rev-parse", "v1^{commit}"), repo.git("rev-parse", "HEAD")
    assert pinned(tmp_path, repo.url, "v1")["commit"] == first
    assert pinned(tmp_path, repo.url, "refs/tags/v1")["commit"] == first
    assert pinned(tmp_path, repo.url, first)["commit"] == first
    assert pinned(tmp_path, repo.url, "")["commit"] == last
    back = pinned(tmp_path, repo.url, "v1", last)
    assert (back["count"], back["told"]) == (0, "no longer in it: 2 of the old commits")
    assert pinned(tmp_path, repo.url, "main", "1" * 40)["told"] == "the repository no longer has the old commit"


def test_a_server_of_plain_files(repo: Repo, tmp_path: Path):
    repo.git("update-server-info")
    with serving(repo.path.parent) as server:
        server.wrong = "dumb"
        url = f"{server.url}/engine/.git"
        first = repo.git("rev-parse", "v1^{commit}")
        found = pinned(tmp_path, url, "main", first)
        assert (found["tree"], found["told"]) == (repo.tree(), "what is new cannot be told")
        assert ask(tmp_path, "check", url, commit=first, ref="").last["tree"] == repo.tree(first)


def test_no_such_ref(repo: Repo, tmp_path: Path):
    answer = ask(tmp_path, "pin", repo.url, ref="mian", old="")
    assert (answer.code, answer.last["wanted"]) == (1, "did you mean main?")


def test_submodules_with_relative_urls(repo: Repo, tmp_path: Path):
    inner = Repo(tmp_path / "repos" / "inner")
    commit = inner.commit({"i": "1"})
    repo.git("submodule", "add", "-q", "../inner", "third/inner")
    repo.commit()
    assert pinned(tmp_path, repo.url, "main")["submodules"] == [
        {"path": "third/inner", "repository": inner.url, "commit": commit, "tree": inner.tree()}
    ]


@pytest.mark.parametrize(
    ("base", "url", "result"),
    [
        ("https://git.example.org/a/b.git", "../c.git", "https://git.example.org/a/c.git"),
        ("https://git.example.org/a/b.git/", "./c", "https://git.example.org/a/b.git/c"),
        ("ssh://git@git.example.org/a/b", "../../x/y", "ssh://git@git.example.org/x/y"),
        ("https://git.example.org/a/b", "git@git.example.org:x/y.git", "ssh://git@git.example.org/x/y.git"),
        ("https://git.example.org/a/b", "https://other.example.org/x", "https://other.example.org/x"),
    ],
)
def test_urls_of_submodules(base: str, url: str, result: str):
    assert joined(base, url) == result


def test_check_asks_the_repository_and_not_the_mirror(repo: Repo, tmp_path: Path):
    commit = repo.git("rev-parse", "HEAD")
    pinned(tmp_path, repo.url, "main")
    found = ask(tmp_path, "check", repo.url, commit=commit, ref="main").last
    assert (found["tree"], found["time"]) == (repo.tree(), repo.time)
    missing = ask(tmp_path, "check", repo.url, commit="4" * 40, ref="main")
    assert (missing.code, missing.last["what"]) == (1, f"commit {'4' * 40} is not in the repository")
    repo.path.rename(tmp_path / "gone")
    gone = ask(tmp_path, "check", repo.url, commit=commit, ref="main")
    assert (gone.code, gone.last["what"]) == (1, "there is no such repository")
    assert not list((tmp_path / "store" / "mirrors").glob("check-*"))


def test_refs_without_end(repo: Repo, tmp_path: Path):
    with serving(repo.path.parent) as server:
        server.wrong = "huge"
        answer = ask(tmp_path, "refs", f"{server.url}/engine/.git")
    assert answer.code == 1
    assert "more than 64 MiB" in answer.last["found"]


def test_hostile_gitmodules(repo: Repo, tmp_path: Path):
    inner = repo.git("rev-parse", "HEAD")
    modules = repo.blob(b'[submodule "x"\n')
    tree = repo.raw_tree(("100644", b".gitmodules", modules), ("160000", b"sub", inner))
    answer = ask(tmp_path, "pin", repo.url, ref=repo.commit_tree(tree), old="")
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    assert ".gitmodules cannot be read" in answer.last["found"]


def test_a_repository_with_sha256_objects_is_refused_with_the_reason(tmp_path: Path):
    path = tmp_path / "other"
    subprocess.run(["git", "init", "-q", "--object-format=sha256", "-b", "main", str(path)], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(path), *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    for action, more in (("pin", {"ref": "main", "old": ""}), ("check", {"ref": "main", "commit": "1" * 40})):
        answer = ask(tmp_path, action, f"file://{path}", **more)
        assert answer.code == 1
        assert "sha256 objects" in json.dumps(answer.last), answer.last
