"""Newer or not, by name alone."""

from __future__ import annotations

import pytest

from sparkbuild.upstream.versions import newest, parse

TABLE = [
    ("v1.2", ["v1.3", "v1.10", "v2.0rc1", "main"], "v1.10"),
    ("1.2", ["v1.3"], "v1.3"),
    ("v1.2", ["1.1", "v1.2", "v1.2.0"], ""),
    ("v1.2", ["v1.2.post1", "v1.2.post2"], "v1.2.post2"),
    ("v2.0rc1", ["v2.0rc2", "v2.0.dev9"], "v2.0rc2"),
    ("v2.0rc1", ["v2.0", "v2.0rc2"], "v2.0"),
    (
        "12.8.1-devel-ubuntu24.04",
        ["13.0.0-devel-ubuntu24.04", "13.1.0-runtime-ubuntu24.04", "latest"],
        "13.0.0-devel-ubuntu24.04",
    ),
    ("24.10-py3", ["25.01-py3", "25.02"], "25.01-py3"),
    ("r35", ["r34", "r36"], "r36"),
    ("release-1.2", ["release-1.3", "v9"], "release-1.3"),
    ("main", ["v1"], ""),
    ("v1", ["v" + "9" * 400, "v" + "9" * 30], ""),
]


@pytest.mark.parametrize(("current", "names", "expected"), TABLE, ids=lambda value: str(value)[:30])
def test_newest(current: str, names: list[str], expected: str):
    assert newest(current, names) == expected


def test_no_version():
    assert parse("latest") is None
