"""Paths by their texts."""

from __future__ import annotations

import pytest

from sparkbuild.agent.disk.files import is_in


@pytest.mark.parametrize(
    ("path", "folder", "wanted"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a/", "/a//", True),
        ("/a/../b", "/a", False),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
        ("/a", "", False),
    ],
)
def test_in_a_folder(path: str, folder: str, wanted: bool) -> None:
    assert is_in(path, folder) is wanted
