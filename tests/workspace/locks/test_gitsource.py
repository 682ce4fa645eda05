"""Git sources, base images and included files of a lock: what is read, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.core.errors import LockError
from sparkbuild.workspace.locks import gitsource, sourcelock
from sparkbuild.workspace.locks.baseimage import BaseImage, parse
from sparkbuild.workspace.locks.gitsource import GitSource, Patch, Submodule, bad_ref, url_wanted
from sparkbuild.workspace.locks.sourcelock import SourceLock
from tests.workspace.helpers import FORMAT, digest, put

C, T, S = "c" * 40, "d" * 40, "e" * 64
ENGINE = f"engine.repository=https://git.example.org/engine.git\nengine.commit={C}\nengine.tree={T}\n"


def lock(text: str) -> SourceLock:
    return sourcelock.parse(FORMAT + text, "eng", "locks/eng.source.lock")


def mistake(text: str, component: str = "engine") -> str:
    with pytest.raises(LockError) as caught:
        lock(text).source(component)
    return str(caught.value)


def test_a_published_lock_has_three_keys():
    found = lock(ENGINE)
    assert found.sources() == ("engine",)
    assert found.source("engine") == GitSource("engine", "https://git.example.org/engine.git", "", C, T, 0)


def test_all_keys():
    text = ENGINE + (
        f"engine.ref=main\nengine.time=1700000000\nengine.lfs=pointers\n"
        f"engine.submodule.third.party/b.c.repository=file:src/b\nengine.submodule.third.party/b.c.commit={C}\n"
        f"engine.submodule.third.party/b.c.tree={T}\n"
        f"engine.patch.10.sha256={S}\nengine.patch.2.sha256={'f' * 64}\n"
        f"input.patches/b.diff.sha256={S}\ninput.patches/a.diff.sha256={'f' * 64}\n"
    )
    found = lock(text).source("engine")
    assert (found.ref, found.time, found.lfs) == ("main", 1_700_000_000, "pointers")
    assert found.submodules == (Submodule("third.party/b.c", "file:src/b", C, T),)
    assert found.patches == (Patch(2, "patches/a.diff", "f" * 64), Patch(10, "patches/b.diff", S))
    assert lock(text).sources() == ("engine",)


def test_what_is_no_git_source():
    text = (
        f"model.repository=org/name\nflashinfer.commit={C}\nflashkda.patch.sha256={S}\nvllm.package.tree={T}\n"
        f"model.version=1\nfile.repository=https://git.example.org/x.tar.gz\nfile.commit={C}\n"
        f"file.artifact.url=https://git.example.org/x.tar.gz\nfile.artifact.sha256={S}\n"
    )
    assert lock(text).sources() == ()
    assert lock(text).check() == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("engine.repository=https://git.example.org/x\nengine.ref=main\n", 2, "lock:update eng engine=main"),
        (ENGINE.replace("https://git", "https://me:secret@git"), 2, "without a password or token"),
        (ENGINE.replace("https://git", "https://token@git"), 2, "without a password or token"),
        (ENGINE.replace("https", "ext::sh -c x; https"), 2, "an https://, ssh:// or file: URL"),
        (ENGINE + "engine.ref=-u\n", 5, "branch or a tag"),
        (ENGINE + "engine.time=yesterday\n", 5, "unix seconds"),
        (ENGINE + "engine.lfs=yes\n", 5, "`refused`"),
        (
            ENGINE + f"engine.submodule.sub.commit={C}\n",
            5,
            "engine.submodule.sub.repository, engine.submodule.sub.tree",
        ),
        (ENGINE + "engine.submodule.sub.url=x\n", 5, "not a key of a submodule"),
        (ENGINE + f"engine.submodule.a/../b.commit={C}\n", 5, "its path cannot be used"),
        (ENGINE + f"engine.submodule..git/x.commit={C}\n", 5, "its path cannot be used"),
        (ENGINE + f"engine.patch.1.sha256={S}\n", 5, "pins no file with this sha256"),
    ],
)
def test_mistakes_have_their_line(text: str, line: int, words: str):
    message = mistake(text)
    assert f"locks/eng.source.lock:{line}" in message
    assert words in message
    assert "secret" not in message
    assert "token@" not in message
    assert len(lock(text).check()) == 1


def test_did_you_mean():
    assert "did you mean `engine`?" in mistake(ENGINE, "engin")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://git.example.org/a", ""),
        ("http://git.example.org:8080/a/b.git", ""),
        ("ssh://git@git.example.org:2222/a", ""),
        ("file:///srv/a", ""),
        ("file:src/a", ""),
        ("file:../a", "file:///absolute/path, or file:path/inside/the/workspace"),
        ("file://host/a", "file:///absolute/path, or file:path/inside/the/workspace"),
        ("git@git.example.org:a/b.git", "ssh://git@git.example.org/a/b.git"),
        ("git://git.example.org/a", "an https://, ssh:// or file: URL"),
        ("ext::sh", "an https://, ssh:// or file: URL"),
        ("/srv/a", "an https://, ssh:// or file: URL"),
        ("-u", "an https://, ssh:// or file: URL"),
        ("https://", "a URL with a host and a path"),
        ("ssh://-oProxyCommand=x/a", "a URL with a host and a path"),
        ("ssh://-l@git.example.org/a", "a plain user name before the `@`"),
        ("https://git.example.org/a?token=x", "a URL without `?`"),
        ("https://git.example.org/a b", "an https://, ssh:// or file: URL"),
        ("https://[::1/a", "an https://, ssh:// or file: URL"),
    ],
)
def test_urls(url: str, wanted: str):
    assert url_wanted(url) == wanted


def test_refs():
    assert not any(map(bad_ref, ["main", "v1.2", "feature/x", "refs/tags/v1", "a-b", "release@2"]))
    bad = ["-x", "a..b", "a b", "a~1", "a^", "a:b", "a*", "a.lock", "/a", "a/", "a//b", "@", "a@{1}", "a\\b", "x" * 300]
    assert all(map(bad_ref, bad))


# -- base images -----------------------------------------------------------------------------------------------------

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("value", "host", "path", "tag"),
    [
        (f"vllm@{DIGEST}", "", "vllm", ""),
        (f"org/vllm:26.01-py3@{DIGEST}", "", "org/vllm", "26.01-py3"),
        (f"registry.example.org/a/b/c@{DIGEST}", "registry.example.org", "a/b/c", ""),
        (f"localhost:5000/a:x@{DIGEST}", "localhost:5000", "a", "x"),
        (f"10.0.0.1:5000/a@{DIGEST}", "10.0.0.1:5000", "a", ""),
    ],
)
def test_images(value: str, host: str, path: str, tag: str):
    found = lock(f"runtime.base.image={value}\n").image("runtime.base.image")
    assert found == BaseImage("runtime.base.image", host, path, tag, DIGEST)
    assert found.written() == value
    assert found.pinned == value.replace(f":{tag}@" if tag else "@", "@")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("org/vllm:latest", "may be another image tomorrow"),
        ("org/vllm", "may be another image tomorrow"),
        ("org/vllm@sha256:abc", "is not an image"),
        (f"Org/vllm@{DIGEST}", "is not an image"),
        (f"a//b@{DIGEST}", "is not an image"),
        (f"-x@{DIGEST}", "is not an image"),
        (f"a@{DIGEST}@{DIGEST}", "is not an image"),
        ("", "is not an image"),
    ],
)
def test_images_that_are_none(value: str, words: str):
    with pytest.raises(LockError) as caught:
        lock(f"x=y\nruntime.base.image={value}\n").image("runtime.base.image")
    assert words in str(caught.value)
    assert caught.value.where == "locks/eng.source.lock:3"


def test_an_image_by_a_typing_error():
    with pytest.raises(LockError, match="no image"):
        lock(f"runtime.base.image=a@{DIGEST}\n").image("runtime.bas.image")
    assert parse("x", "a" * 300) is None


# -- included files --------------------------------------------------------------------------------------------------

MANIFEST = f"""\
# component   source-commit  sha256  url
sglang   {C}  {S}  https://git.example.org/sglang/archive/{C}.tar.gz

ring/_proxy.py {C} {S} https://git.example.org/ring/raw/{C}/_proxy.py
b12x\t{C}\t{S}\thttps://git.example.org/b12x.git
local  patches/1.diff  {"f" * 64}  -
"""


def write(root: Path, name: str, content: str, more: str = "") -> Path:
    put(root, name, content)
    return put(root, "locks/eng.source.lock", f"{FORMAT}{more}include.{name}.sha256={digest(content)}\n")


def test_a_manifest(tmp_path: Path):
    path = write(tmp_path, "images/mia/sources.manifest", MANIFEST, f"b12x.tree={T}\n")
    found = sourcelock.read(path, tmp_path)
    assert found.artifacts() == ("ring/_proxy.py", "sglang")
    assert found.artifact("sglang").filename == f"{C}.tar.gz"
    assert found.values["sglang.bundle.sha256"] == S
    assert found.sources() == ("b12x",)
    assert found.source("b12x").tree == T
    assert found.inputs() == {"images/mia/patches/1.diff": "f" * 64}
    assert found.where("b12x.commit") == "images/mia/sources.manifest:5"
    assert found.check() == []
    plain = sourcelock.parse(path.read_text(), "eng", "locks/eng.source.lock")
    assert plain.sha256 == found.sha256


def test_key_value(tmp_path: Path):
    text = "# versions\nCUDA=13.0\nexport TORCH = 2.9\n".replace(" = ", "=") + 'QUOTED="a b"\nEMPTY=\n'
    found = sourcelock.read(write(tmp_path, "versions.env", text), tmp_path).values
    assert {key: found[key] for key in found if key.startswith("versions.")} == {
        "versions.CUDA": "13.0",
        "versions.TORCH": "2.9",
        "versions.QUOTED": "a b",
        "versions.EMPTY": "",
    }


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (MANIFEST[:-1], 6, "may be cut off"),
        (f"a {C} {S}\n", 1, "3 columns"),
        (f"a {C[:-1]} {S} https://git.example.org/a\n", 1, "the commit cannot be used"),
        (f"a {C} {S.upper()} https://git.example.org/a\n", 1, "the sha256 cannot be used"),
        (f"a {C} {S} https://me:pw@git.example.org/a\n", 1, "the url cannot be used"),
        (f"a {C} {S} ext::sh\n", 1, "the url cannot be used"),
        (f"../a {C} {S} https://git.example.org/a\n", 1, "the component cannot be used"),
        (f"local ../x {S} -\n", 1, "leads out of its folder"),
        (MANIFEST + MANIFEST.splitlines()[1] + "\n", 7, "stands there twice"),
        ("A=1\nb c\n", 2, "not a line of KEY=VALUE"),
        ("A=1\nA=2\n", 2, "stands there twice"),
        ("A=$(rm -rf /)\n", 1, "only a shell could read"),
        ('A="b\n', 1, "a quote that is not closed"),
        ("A=\x1b[31m\n", 1, "a control character"),
        ("# nothing\n", 1, "holds nothing"),
        ("", 1, "holds nothing"),
        ("A=1\n" * 10_001, 10_001, "too many rows"),
    ],
)
def test_included_files_that_are_wrong(tmp_path: Path, content: str, line: int, words: str):
    with pytest.raises(LockError) as caught:
        sourcelock.read(write(tmp_path, "x.txt", content), tmp_path)
    assert words in str(caught.value)
    assert caught.value.where == f"x.txt:{line}"
    assert "pw" not in str(caught.value)


def test_an_included_file_that_changed_and_its_pin(tmp_path: Path):
    path = write(tmp_path, "sources.manifest", MANIFEST)
    put(tmp_path, "sources.manifest", MANIFEST.replace("ring", "rong"))
    with pytest.raises(LockError, match=r"sources\.manifest is not what the lock pins") as caught:
        sourcelock.read(path, tmp_path)
    assert "lock:pin:eng" in caught.value.next
    text, changed = sourcelock.pin(path, tmp_path)
    assert changed == ("include.sources.manifest.sha256",)
    sourcelock.write(path, text, "locks/eng.source.lock")
    assert "rong/_proxy.py" in sourcelock.read(path, tmp_path).artifacts()


def test_included_files_that_cannot_be_read(tmp_path: Path):
    path = write(tmp_path, "a.env", "A=1\n")
    (tmp_path / "a.env").unlink()
    with pytest.raises(LockError, match=r"a\.env does not exist"):
        sourcelock.read(path, tmp_path)
    (tmp_path / "a.env").write_bytes(b"A=\xff\n")
    lock_text = path.read_text().splitlines()[0] + "\ninclude.a.env.sha256="
    path.write_text(lock_text + sourcelock.hashlib.sha256(b"A=\xff\n").hexdigest() + "\n")
    with pytest.raises(LockError, match="is not UTF-8"):
        sourcelock.read(path, tmp_path)


def test_a_key_of_the_lock_and_of_an_included_file(tmp_path: Path):
    path = write(tmp_path, "sources.manifest", MANIFEST, f"sglang.commit={C}\n")
    with pytest.raises(LockError, match=r"`sglang\.commit` stands there twice") as caught:
        sourcelock.read(path, tmp_path)
    assert caught.value.found == "also in locks/eng.source.lock:2"


def test_pinning_a_patch_anew_changes_both_its_keys(tmp_path: Path):
    put(tmp_path, "p.diff", "old")
    old = digest("old")
    path = put(
        tmp_path, "locks/eng.source.lock", f"{FORMAT}{ENGINE}engine.patch.1.sha256={old}\ninput.p.diff.sha256={old}\n"
    )
    put(tmp_path, "p.diff", "new")
    text, changed = sourcelock.pin(path, tmp_path)
    assert set(changed) == {"input.p.diff.sha256", "engine.patch.1.sha256"}
    found = sourcelock.parse(text, "eng", "locks/eng.source.lock").source("engine")
    assert found.patches == (Patch(1, "p.diff", digest("new")),)


@pytest.mark.parametrize("url", ["/srv/engine", "../up/engine.git", "./engine", "~/engine", "--upload-pack=/bin/sh"])
def test_a_path_in_the_place_of_the_url_is_a_mistake(url: str) -> None:
    """It was taken for no git source at all, and its pins were called as they should be without anybody looking."""
    values = {"g.repository": url, "g.commit": "a" * 40, "g.tree": "b" * 40}
    assert gitsource.components(values) == ("g",)
    assert gitsource.url_wanted(url)
    assert gitsource.components({**values, "g.repository": "org/name"}) == ()
