"""Chunk digests: one algorithm from two libraries, a fallback that every python has, and no belief in a library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sparkbuild.agent.ledger import digest


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    digest.function.cache_clear()
    yield
    digest.function.cache_clear()


def test_wheel_and_system_library_agree() -> None:
    pytest.importorskip("xxhash")
    wheel, system = digest._from_wheel(), digest._from_system()
    if system is None:
        pytest.skip("no libxxhash.so.0 here")
    assert wheel is not None
    for size in (0, 1, 16, 240, 241, 1 << 20):
        data = bytearray(os.urandom(size))
        assert wheel(data) == system(data)
        assert wheel(memoryview(data)) == system(memoryview(data))


def test_order_of_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    if digest._from_system() is not None:
        monkeypatch.setattr(digest, "_from_wheel", lambda: None)
        assert digest.best() == "xxh3_64"
    digest.function.cache_clear()
    monkeypatch.setattr(digest, "_from_wheel", lambda: None)
    monkeypatch.setattr(digest, "_from_system", lambda: None)
    assert digest.best() == "blake2b_8"
    assert digest.function("xxh3_64") is None
    fallback = digest.function("blake2b_8")
    assert fallback is not None
    assert len(fallback(b"x")) == digest.WIDTH


def test_a_library_with_wrong_digests_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def lying() -> Any:
        return lambda data: bytes(8) if len(data) > 240 else b"\x2d\x06\x80\x05\x38\xd3\x94\xc2"

    monkeypatch.setattr(digest, "_from_wheel", lying)
    monkeypatch.setattr(digest, "_from_system", lying)
    assert digest.best() == "blake2b_8"


@pytest.mark.parametrize("error", [OSError("no such library"), AttributeError("XXH3_64bits")])
def test_a_system_without_the_library(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def missing(*_args: Any) -> Any:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert digest._from_system() is None


def test_unknown_algorithm_is_none() -> None:
    assert digest.function("md5_8") is None


@pytest.mark.parametrize(("size", "chunks"), [(0, 0), (1, 1), (4 << 20, 1), ((4 << 20) + 1, 2)])
def test_count(size: int, chunks: int) -> None:
    assert digest.count(size) == chunks
