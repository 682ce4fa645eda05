"""Locks through doit, with real repositories, a registry and a package index on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.gitserver import Repo
from tests.upstream.registry import Server, registry

FORMAT = "format=local-inference-source-lock/v1\n"


@dataclass
class Done:
    code: int
    out: str


class Space:
    """A workspace with a lock of one repository, one image and one wheel."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root = root
        self.server = server
        root.mkdir()
        (root / "dodo.py").write_text("from sparkbuild.plugin.tasks import *\n\nDOIT_CONFIG = config()\n")
        (root / "locks").mkdir()
        self.index = root.parent / "index" / "tiny"
        self.index.mkdir(parents=True)
        self.repo = Repo(root / "src" / "engine")
        self.first = self.repo.commit({"a": "1"}, "first")
        self.repo.git("tag", "v1.0")
        self.digest = server.put("org/base", "1.0", "one")
        self.sha256 = self.wheel("1.0")
        self.lock = root / "locks" / "eng.source.lock"
        self.lock.write_text(
            f"{FORMAT}# the engine\nengine.repository=file:src/engine\nengine.ref=main\nengine.commit={self.first}\n"
            f"engine.tree={self.repo.tree()}\nengine.bundle.sha256={'b' * 64}\n\n# the base\n"
            f"runtime.base.image={server.host}/org/base:1.0@{self.digest}\n"
            f"tiny.wheel.name=tiny\ntiny.wheel.version=1.0\ntiny.wheel.file=tiny-1.0-py3-none-any.whl\n"
            f"tiny.wheel.sha256={self.sha256}\n"
        )

    def wheel(self, version: str) -> str:
        path = self.index / f"tiny-{version}-py3-none-any.whl"
        info = f"tiny-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tiny.py", "")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        names = sorted(other.name for other in self.index.glob("*.whl"))
        (self.index / "index.html").write_text("".join(f'<a href="{name}">{name}</a>\n' for name in names))
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def doit(self, *arguments: str, **more: str) -> Done:
        index = {"PIP_INDEX_URL": self.index.parent.as_uri(), "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": ""}
        env = {**os.environ, **index, **more}
        argv = [sys.executable, "-m", "doit", *arguments]
        done = subprocess.run(argv, cwd=self.root, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert "Traceback" not in done.stdout + done.stderr
        return Done(done.returncode, done.stdout + done.stderr)

    def ok(self, *arguments: str) -> str:
        done = self.doit(*arguments)
        assert done.code == 0, done.out
        return done.out

    def fails(self, *arguments: str, code: int = 1, **env: str) -> str:
        done = self.doit(*arguments, **env)
        assert done.code == code, done.out
        return done.out


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with registry() as server:
        yield Space(tmp_path / "space", server)


def test_check_is_offline_and_names_every_mistake(space: Space):
    assert "1 lock with 3 components" in space.ok("lock:check")
    asked = list(space.server.asked)
    text = space.lock.read_text()
    space.lock.write_text(text.replace(f"@{space.digest}", "").replace("engine.ref=main", "engine.ref=--upload-pack"))
    out = space.fails("lock:check")
    assert "`runtime.base.image` is a tag, which may be another image tomorrow" in out
    assert "`engine.ref` cannot be used" in out
    assert "locks/eng.source.lock:4" in out
    assert space.server.asked == asked


def test_a_source_is_made_and_then_is_there_offline(space: Space):
    assert "source:eng:engine" in space.ok("list", "--all")
    assert "source:eng" not in space.ok("list")
    assert "done  source:eng:engine" in space.ok("source:eng:engine")
    (space.root / "src").rename(space.root / "gone")
    assert "ok    source:eng:engine" in space.ok("source:eng:engine")
    for path in (space.root / ".sparkbuild").rglob("source.tar"):
        path.unlink()
    assert "the archive is gone" in space.ok("why", "source:eng:engine")
    assert "done  source:eng:engine" in space.ok("source:eng:engine")


def test_a_rebase_to_equal_content_is_looked_at_once_and_builds_nothing_anew(space: Space):
    """The key has the tree; that the new commit has this tree is seen once, as a fresh machine would see it."""
    space.ok("source:eng:engine")
    space.repo.git("commit", "-q", "--amend", "-m", "reworded")
    out = space.ok("lock:update", "eng")
    assert "the tree is the same: nothing is built anew" in out
    assert f"engine.commit: {space.first[:12]} -> " in out
    assert "exported from another commit" in space.ok("source:eng:engine")
    assert "ok    source:eng:engine" in space.ok("source:eng:engine")


def test_update_shows_and_keeps(space: Space):
    space.repo.commit({"a": "2"}, "second")
    new = space.repo.commit({"a": "3"}, "third")
    before = space.lock.read_text()
    dry = space.ok("lock:update", "eng", "--dry-run")
    assert "1 of 2 would change; nothing was written" in dry
    assert space.lock.read_text() == before
    assert "1 of 2 would change" in space.ok("lock:update:eng", "--dry-run")

    out = space.ok("lock:update", "eng")
    assert f"engine.commit: {space.first[:12]} -> {new[:12]}" in out
    assert "2 commits:\n" in out
    assert out.index(" third\n") < out.index(" second\n")
    assert "not touched, and of the old commit: engine.bundle.sha256" in out
    assert "runtime.base.image: as it was" in out
    after = space.lock.read_text()
    changed = before.replace(space.first, new).replace(space.repo.tree(space.first), space.repo.tree(new))
    at = changed.index("engine.bundle.sha256")
    end = changed.index("\n", at) + 1
    assert after == changed[:end] + f"engine.time={space.repo.time}\n" + changed[end:]
    assert "1 lock with 3 components" in space.ok("lock:check")
    assert "nothing to change" in space.ok("lock:update", "eng")


def test_update_of_what_is_named(space: Space):
    space.repo.commit({"a": "2"})
    assert "engine.ref: main -> v1.0" in space.ok("lock:update", "eng", "engine=v1.0")
    digest = space.server.put("org/base", "1.1", "two")
    sha256 = space.wheel("1.1")
    out = space.ok("lock:update", "eng", "runtime.base=1.1", "tiny=1.1")
    assert f"tiny.wheel.sha256: {space.sha256[:12]} -> {sha256[:12]}" in out
    text = space.lock.read_text()
    assert f"runtime.base.image={space.server.host}/org/base:1.1@{digest}\n" in text
    assert f"tiny.wheel.file=tiny-1.1-py3-none-any.whl\ntiny.wheel.sha256={sha256}\n" in text
    assert text.startswith(f"{FORMAT}# the engine\n")


def test_a_floating_image_is_pinned(space: Space):
    text = space.lock.read_text()
    space.lock.write_text(text.replace(f"@{space.digest}", ""))
    assert "lock:update eng runtime.base.image=1.0" in space.fails("lock:check")
    space.ok("lock:update", "eng", "runtime.base.image=1.0")
    assert space.lock.read_text() == text


def test_a_new_component_is_pinned(space: Space):
    text = space.lock.read_text()
    space.lock.write_text(text + "more.repository=file:src/engine\nmore.ref=v1.0\n")
    assert "`more` is not pinned to a commit" in space.fails("lock:check")
    assert "not pinned to a commit" in space.fails("list", code=2)
    space.ok("lock:update", "eng", "more=v1.0")
    lines = space.lock.read_text().splitlines()
    assert lines[-4:-1] == ["more.ref=v1.0", f"more.commit={space.first}", f"more.tree={space.repo.tree(space.first)}"]
    space.ok("lock:check")


def test_submodules_come_and_go(space: Space):
    inner = Repo(space.root / "src" / "inner")
    commit = inner.commit({"i": "1"})
    space.repo.git("submodule", "add", "-q", "../inner", "third/inner")
    space.repo.commit(message="with inner")
    assert "submodule.third/inner.commit: - -> " in space.ok("lock:update", "eng")
    assert f"engine.submodule.third/inner.commit={commit}\n" in space.lock.read_text()
    assert "done  source:eng:engine" in space.ok("source:eng:engine")
    assert "and 1 submodules fetched anew" in space.ok("lock:verify:eng")
    space.repo.git("rm", "-q", "third/inner")
    space.repo.commit(message="without")
    assert "submodule.third/inner.tree" in space.ok("lock:update", "eng")
    assert "submodule" not in space.lock.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eng", "engin=main"], "did you mean `engine`?"),
        (["eng", "engine=nowhere"], "there is no branch or tag `nowhere`"),
        (["eng", "engine=-u"], "cannot be a branch or a tag"),
        (["eng", "engine="], "`engine=` names nothing"),
        (["eng", "tiny=9"], "there is no such wheel"),
        (["eng", "runtime.base.image=9"], "no such image or tag"),
        (["eng", "engine=main", "runtime.base.image=9"], "no such image or tag"),
        (["ing"], "did you mean `eng`?"),
        ([], "name one lock"),
        (["eng", "--dryrun"], "did you mean: --dry-run?"),
        (["--dryrun", "eng"], "did you mean: --dry-run?"),
        (["serve:nope"], "there is no recipe `nope`"),
        (["eng", "other"], "name one lock"),
    ],
)
def test_nothing_is_written_when_something_fails(space: Space, arguments: list[str], words: str):
    space.repo.commit({"a": "2"})
    before = space.lock.read_text()
    begins = words.startswith(("there is no branch", "cannot be", "there is no such", "no such image"))
    out = space.fails("lock:update", *arguments, code=1 if begins else 3)  # 3: seen before anything began
    assert words in out
    assert ("run   lock:update" in out) == begins
    assert space.lock.read_text() == before
    assert {path.name for path in space.lock.parent.iterdir()} == {"eng.source.lock"}


def test_what_an_included_file_pins_is_not_written_over(space: Space):
    row = f"engine2 {space.first} {'b' * 64} https://127.0.0.1:1/engine.git\n"
    (space.root / "sources.manifest").write_text(row)
    digest = hashlib.sha256(row.encode()).hexdigest()
    space.lock.write_text(space.lock.read_text() + f"include.sources.manifest.sha256={digest}\n")
    assert "1 lock with 4 components" in space.ok("lock:check")
    assert "the repository cannot be reached" in space.fails("lock:update", "eng", "engine2=main")
    (space.root / "sources.manifest").write_text(row[:-1])
    assert "is not what the lock pins" in space.fails("lock:check")


def test_verify(space: Space):
    out = space.ok("lock:verify")
    assert "3 of 3 components are as locked" in out
    assert "ok   eng/engine" in out
    assert "ok   eng/tiny                downloaded anew" in out
    assert "the registry has the locked manifest" in out
    assert not list((space.root / ".sparkbuild").glob("**/verify/*"))


def test_verify_finds_what_is_other(space: Space):
    lies = space.lock.read_text().replace(space.repo.tree(), "1" * 40)
    space.lock.write_text(lies)
    wheel = next(space.index.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    del space.server.images["org/base"]
    out = space.fails("lock:verify:eng")
    assert "3 of 3 components are not as locked" in out
    assert "engine: the commit has another tree" in out
    assert "hash is not the locked one" in out
    assert "no such image or tag" in out


def test_who_cannot_be_asked_is_no_failure_and_no_success(space: Space):
    """Of each kind: a git server, a download, a wheel's index, a registry. Exit code 4, nothing is called FAIL."""
    space.server.wrong = "503"
    text = space.lock.read_text().replace("file:src/engine", "https://127.0.0.1:1/engine.git")
    text += f"gone.artifact.url=http://127.0.0.1:1/x.deb\ngone.artifact.sha256={'a' * 64}\n"
    space.lock.write_text(text)
    env = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0"}
    out = space.fails("lock:verify", code=4, **env)
    assert out.startswith("run   lock:verify\n")
    assert "?     lock:verify" in out
    assert "FAIL" not in out
    assert "0 of 4 components are as locked, 4 could not be looked at" in out
    for name in ("engine", "tiny", "gone", "runtime.base.image"):
        assert f"?    eng/{name} " in out
    for reason in ("the repository cannot be reached", "download failed", "HTTP 503", "Connection refused"):
        assert reason in out
    assert "1 unknown; " in out


def test_what_is_another_counts_before_what_cannot_be_asked(space: Space):
    space.server.wrong = "503"
    space.lock.write_text(space.lock.read_text().replace(space.repo.tree(), "1" * 40))
    out = space.fails("lock:verify")
    assert "1 of 3 components are not as locked, 1 could not be looked at" in out


@pytest.mark.parametrize("what", ["commit", "repository", "file"])
def test_what_is_gone_is_a_failure(space: Space, what: str):
    if what == "repository":
        (space.root / "src/engine").rename(space.root / "src/other")
    elif what == "commit":
        space.lock.write_text(space.lock.read_text().replace(space.first, "1" * 40))
    else:
        pins = f"gone.artifact.url=file:x.deb\ngone.artifact.sha256={'a' * 64}\n"
        space.lock.write_text(space.lock.read_text() + pins)
    assert "1 of " in space.fails("lock:verify:eng")


def test_only_what_can_be_updated_is_suggested(space: Space):
    pins = f"busybox-static.artifact.url=file:x.deb\nbusybox-static.artifact.sha256={'a' * 64}\n"
    git = f"engine.repository=file:src/engine\nengine.commit={space.first}\nengine.tree={'1' * 40}\n"
    for part, wanted in (
        (pins, "write the new url and sha256, then `doit lock:verify:eng`"),
        (f"{pins}{git}engine.time=1\n", "as in `doit lock:update eng engine=REF`"),
        (f"{pins}{_wheel(space)}", "as in `doit lock:update eng tiny=VERSION`"),
        (f"{pins}a.image=127.0.0.1:1/a@sha256:{'a' * 64}\n", "as in `doit lock:update eng a.image=TAG`"),
        ("release.name=x\n", "`doit lock:pin:eng`"),
    ):  # fmt: skip
        space.lock.write_text(FORMAT + part)
        out = space.fails("lock:update", "eng", "--dry-run")
        assert wanted in out.replace("./doitw", "doit")  # as it was called
        assert "busybox-static=" not in out
    space.lock.write_text(FORMAT + pins + _wheel(space))
    out = space.fails("lock:update", "eng", "busybox-statik=1", code=3)
    assert "did you mean `busybox-static`? it is a file by its URL, which has no versions" in out
    assert "write the new busybox-static.artifact.url" in out


def _wheel(space: Space) -> str:
    names = {"name": "tiny", "version": "1.0", "file": "tiny-1.0-py3-none-any.whl", "sha256": space.sha256}
    return "".join(f"tiny.wheel.{name}={value}\n" for name, value in names.items())


def test_outdated(space: Space):
    assert "this is it" in space.ok("outdated")
    new = space.repo.commit({"a": "2"})
    space.server.put("org/base", "1.1", "two")
    space.wheel("1.1")
    space.wheel("2.0rc1")
    out = space.fails("outdated", "eng")
    assert out.splitlines()[0].split() == ["component", "locked", "newest", "where"]
    assert f"main {new[:12]}" in out
    rows = json.loads(space.fails("outdated", "--json"))["rows"]
    assert [(row["component"], row["newest"], row["state"]) for row in rows] == [
        ("engine", f"main {new[:12]}", "newer"),
        ("runtime.base.image", "1.1", "newer"),
        ("tiny", "1.1", "newer"),
    ]
    commands = ["doit lock:update eng", "doit lock:update eng runtime.base.image=1.1", "doit lock:update eng tiny=1.1"]
    assert [row["updates"] for row in rows] == [[command] for command in commands]
    assert out.replace("./doitw", "doit").splitlines()[-4:] == [
        "what takes what is newer:",
        *(f"  {command}" for command in commands),
    ]
    space.ok("lock:update", "eng", "engine=v1.0")
    space.repo.git("tag", "v1.1")
    assert json.loads(space.fails("outdated", "--json"))["rows"][0]["newest"] == "v1.1"


def test_outdated_shows_a_later_version_and_what_the_locked_one_is_now(space: Space):
    space.ok("lock:update", "eng", "engine=v1.0")
    new = space.repo.commit({"a": "2"})
    space.repo.git("tag", "-f", "v1.0")
    space.repo.git("tag", "v1.1")
    digest = space.server.put("org/base", "1.0", "moved")
    space.server.put("org/base", "1.1", "two")
    rows = json.loads(space.fails("outdated", "--json"))["rows"]
    assert [row["newest"] for row in rows[:2]] == [
        f"v1.1; v1.0 moved to {new[:12]}",
        f"1.1; 1.0 moved to {digest.removeprefix('sha256:')[:12]}",
    ]
    assert rows[0]["updates"] == ["doit lock:update eng engine=v1.1", "doit lock:update eng"]
    for command in ["lock:update eng", *(row["updates"][0].removeprefix("doit ") for row in rows[:2])]:
        assert "changed in locks/eng.source.lock" in space.ok(*command.split()), command
    assert "what takes" not in space.ok("outdated")


def test_a_commit_without_a_ref_is_taken_by_its_name(space: Space):
    space.lock.write_text(
        space.lock.read_text().replace(
            "engine.ref=main\n", f"engine.time={space.repo.git('log', '-1', '--format=%ct')}\n"
        )
    )
    new = space.repo.commit({"a": "2"})
    rows = json.loads(space.fails("outdated", "--json"))["rows"]
    assert rows[0]["updates"] == [f"doit lock:update eng engine={new}"]
    assert "1 of 1 changed" in space.ok("lock:update", "eng", f"engine={new}")


def test_zeros_are_a_placeholder(space: Space):
    zeros = f"weights.artifact.url=file:x.gguf\nweights.artifact.sha256={'0' * 64}\n"
    (space.root / "x.gguf").write_text("x")
    space.lock.write_text(space.lock.read_text() + zeros)
    out = space.fails("lock:check")
    assert "`weights.artifact.sha256` is a placeholder" in out
    assert f"where:  locks/eng.source.lock:{len(space.lock.read_text().splitlines())}\n" in out
    assert "sha256sum tells it" in out
    assert "engine" not in out
    out = space.fails("lock:verify:eng")
    assert "1 of 4 components are not as locked" in out
    assert "the sha256 of file:x.gguf is a placeholder" in out
    space.ok("list", "--all")


def test_what_a_registry_has_no_more_comes_with_the_command_that_pins_another(space: Space):
    space.lock.write_text(space.lock.read_text().replace(space.digest, f"sha256:{'1' * 64}"))
    out = space.fails("lock:verify:eng").replace("./doitw", "doit")
    assert "next:   `doit lock:update eng runtime.base.image=1.0` pins what the tag 1.0 is now" in out


def test_outdated_when_nobody_answers(space: Space):
    (space.root / "src").rename(space.root / "gone")
    space.server.wrong = "503"
    for path in space.index.iterdir():
        path.unlink()
    out = space.fails("outdated")
    assert "    there is no such repository" in out
    assert "    the registry does not answer as it should" in out
    assert "    tiny: the package index cannot be asked" in out
    rows = json.loads(space.fails("outdated", "--json"))["rows"]
    assert {row["state"] for row in rows} == {"unreachable"}
    assert "there is no lock 'x'" in space.fails("outdated", "x", code=3)


def test_whole_groups_are_refused(space: Space):
    assert "name what to do" in space.fails("lock", code=3)
    assert "name what to do" in space.fails("lock:*", code=3)


def test_a_source_of_which_only_the_repository_is_known_gets_all_its_keys(space: Space):
    space.lock.write_text(f"{FORMAT}g.repository=file:src/engine\nmodel.repository=org/name\n")
    space.ok("lock:update", "eng", "g=main")
    assert f"g.ref=main\ng.commit={space.first}\n" in space.lock.read_text()
    assert f"g.tree={space.repo.tree()}\n" in space.lock.read_text()
    out = space.fails("lock:update", "eng", "g=de982a5")
    assert "abbreviated, it may mean another one tomorrow" in out
    assert "no component `model`" in space.fails("lock:update", "eng", "model=main", code=3)
