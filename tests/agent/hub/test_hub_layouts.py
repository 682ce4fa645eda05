"""Random hub caches, and caches whose shared store huggingface_hub made itself: the mirror holds what was wanted."""

from __future__ import annotations

import fnmatch
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from tests.staging.hubcache import COMMIT, LINK, REAL, WAYS, HubCache, usual, xet_of
from tests.staging.mirror import Mirror

NAMES = st.sampled_from(["config.json", "a.bin", "b.pt", "page15", "model-1.pt", "x y.txt", "ü.json", ".gitattributes"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
SKIPS = st.lists(st.sampled_from(["*.pt", "page15/**", "page15/", "**/a.bin", "*/*/*", "x*", "nothing"]), max_size=3)
DATA = st.sampled_from([b"", b"1", b"same bytes", b"x" * 5000, b"y" * 5000])  # few, so that blobs are shared
FILE = st.tuples(DATA, st.sampled_from(WAYS), st.booleans())


def clear(files: dict[str, tuple[bytes, str, bool]]) -> dict[str, tuple[bytes, str, bool]]:
    """Without those that would lie in a folder of a file's name."""
    return {path: file for path, file in files.items() if not any(path.startswith(f"{other}/") for other in files)}


def is_skipped(path: str, skip: list[str]) -> bool:
    """Written anew from the documentation."""
    ways = [glob + "*" if glob.endswith("/") else glob for glob in skip]
    ways += [glob[3:] for glob in ways if glob.startswith("**/")]
    return any(fnmatch.fnmatchcase(path, glob) for glob in ways)


@settings(max_examples=25, deadline=None)
@given(
    files=st.dictionaries(PATHS, FILE, min_size=1, max_size=8).map(clear),
    skip=SKIPS,
    tree=st.booleans(),
    leftovers=st.booleans(),
    linked=st.booleans(),
)
def test_any_cache(
    files: dict[str, tuple[bytes, str, bool]], skip: list[str], tree: bool, leftovers: bool, linked: bool
) -> None:
    with TemporaryDirectory() as folder:
        top = Path(folder)
        cache = HubCache(top / "nas")
        for path, (data, way, lfs) in files.items():
            cache.add(path, data, way, lfs=lfs)
        cache.ref(text=f"{cache.commit}\n" if leftovers else "")
        if tree:
            cache.write_tree()
        if leftovers:
            cache.leftovers()
        for part in [] if tree else cache.folder.glob("blobs/*.incomplete"):
            part.unlink()  # without a tree nobody knows that it is of another revision
        source = top / "nas"
        if linked:
            source = top / "link"
            source.symlink_to("nas")
        mirror = Mirror(top / "node")
        wanted = {path for path in cache.files if not is_skipped(path, skip)}
        if not wanted:
            assert mirror.refused(source, skip=tuple(skip))["what"] == "nothing of this revision is left to stage"
            return
        about = mirror.stage(source, skip=tuple(skip))
        mirror.holds(cache, skip=tuple(path for path in cache.files if path not in wanted))
        assert about["files"] == len(wanted)
        assert about["skipped"]["files"] == len(cache.files) - len(wanted)
        assert mirror.stage(source, skip=tuple(skip)) == about


def test_a_shared_store_that_huggingface_hub_made(tmp_path: Path) -> None:
    shared = pytest.importorskip("huggingface_hub.utils._shared_blobs", reason="it has no shared store yet")
    source, mirror = tmp_path / "nas", Mirror(tmp_path / "node")
    cache = usual(source)
    for number in (1, 2):
        path = f"model-0000{number}-of-00002.safetensors"
        data = cache.files[path]
        where = {"blob_path": str(cache.blob(path)), "xet_hash": xet_of(data), "cache_dir": source}
        assert shared.publish_blob_to_shared_store(**where, expected_size=len(data))
        assert cache.blob(path).is_symlink()
    cache.write_tree()
    mirror.stage(source)
    mirror.holds(cache)


def test_a_mirror_of_a_mirror(tmp_path: Path) -> None:
    cache = usual(tmp_path / "nas")
    cache.add("real.bin", b"real", REAL)
    cache.add("deep/link.bin", b"deep", LINK)
    first, second = Mirror(tmp_path / "one"), Mirror(tmp_path / "two")
    assert first.stage(tmp_path / "nas") == second.stage(first.cache)
    second.holds(cache)
    assert first.names() == second.names()


def test_another_revision_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """Blobs of both are not copied twice, those of the old one alone go."""
    old, mirror = usual(tmp_path / "nas", commit="1" * 40), Mirror(tmp_path / "node")
    mirror.stage(tmp_path / "nas")
    new = usual(tmp_path / "nas")
    new.add("new.bin", b"new")
    mirror.stage(tmp_path / "nas")
    assert not [name for name in mirror.names() if old.commit in name]
    mirror.holds(new)
    assert os.readlink(new.snapshot / "new.bin").rpartition("/")[2] in str(mirror.names())


def test_a_mirror_made_by_hand_is_adopted(tmp_path: Path) -> None:
    """Nothing is read from the source: the blobs are proven by their names."""
    cache, mirror = usual(tmp_path / "nas"), Mirror(tmp_path / "node")
    shutil.copytree(cache.folder, mirror.folder, symlinks=True)
    answer = mirror.call(tmp_path / "nas")
    assert answer.code == 0, answer.events
    assert (answer.last["read"], answer.last["bytes"], answer.last["adopted"]) == (0, 0, 5)
    mirror.holds(cache)


@pytest.mark.parametrize("text", [f"{COMMIT}\n", f" {COMMIT}\r\n", f"\n{COMMIT}"])
def test_a_ref_with_a_newline_is_written_as_it_should_be(tmp_path: Path, text: str) -> None:
    """`cp -a` of the very cache: nothing of it is in the way, and huggingface_hub finds the revision offline."""
    cache, mirror = usual(tmp_path / "nas"), Mirror(tmp_path / "node")
    cache.ref(text=text)
    shutil.copytree(cache.folder, mirror.folder, symlinks=True)
    assert mirror.look(tmp_path / "nas")["refused"] == {}
    answer = mirror.call(tmp_path / "nas")
    assert answer.code == 0, answer.events
    assert (answer.last["bytes"], answer.last["copied"], answer.last["adopted"]) == (40, 1, 4)
    assert (mirror.folder / "refs/main").read_text() == COMMIT
    mirror.holds(cache)


@pytest.mark.parametrize("text", [f"{'1' * 40}\n", f"{COMMIT} x", COMMIT[:-1], "\n", " " * 5000 + COMMIT])
def test_a_ref_that_says_something_else_is_left_and_shown(tmp_path: Path, text: str) -> None:
    cache, mirror = usual(tmp_path / "nas"), Mirror(tmp_path / "node")
    shutil.copytree(cache.folder, mirror.folder, symlinks=True)
    (mirror.folder / "refs/main").write_text(text)
    said = mirror.refused(tmp_path / "nas")
    assert said["what"].startswith("files that sparkbuild did not stage")
    assert said["found"] == f"refs/main ({text[:60]!r}, wanted {COMMIT!r})"
    assert mirror.look(tmp_path / "nas")["refused"]["found"] == said["found"]
    assert (mirror.folder / "refs/main").read_text() == text


def test_a_ref_that_is_a_link_is_left_and_shown(tmp_path: Path) -> None:
    cache, mirror = usual(tmp_path / "nas"), Mirror(tmp_path / "node")
    shutil.copytree(cache.folder, mirror.folder, symlinks=True)
    (mirror.folder / "refs/main").rename(tmp_path / "main")
    (mirror.folder / "refs/main").symlink_to(tmp_path / "main")
    found = mirror.refused(tmp_path / "nas")["found"]
    assert found == f"refs/main (a link to {tmp_path}/main, wanted {COMMIT!r})"
