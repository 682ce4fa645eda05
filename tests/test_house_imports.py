"""That every form of an import is seen: on what tests/house.py reads, the rules of the house stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import Import, imports, resolved


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b as c", ["a.b"]),
        ("from a import b, c", ["a.b", "a.c"]),
        ("from . import x", ["sparkbuild.nodes.x"]),
        ("from ..core import key", ["sparkbuild.core.key"]),
        ("def f():\n    import late", ["late"]),
        ("if TYPE_CHECKING:\n    from a import T", ["a.T"]),
        ("importlib.import_module('a.b')", ["a.b"]),
    ],
)
def test_every_form_of_import_is_seen(source: str, names: list[str]) -> None:
    assert [found.name for found in imports(source, "sparkbuild.nodes.ask")] == names


def test_relative_imports_of_a_package() -> None:
    assert imports("from . import x", "sparkbuild.nodes", is_package=True) == [Import("sparkbuild.nodes.x", 1)]


def test_a_name_is_the_module_that_it_is_in() -> None:
    known = {"sparkbuild.core": Path("a"), "sparkbuild.core.key": Path("b")}
    names = ("sparkbuild.core.key", "sparkbuild.core.key.Key", "sparkbuild.core.STATE", "os.path")
    assert [resolved(name, known) for name in names] == [
        "sparkbuild.core.key",
        "sparkbuild.core.key",
        "sparkbuild.core",
        "",
    ]
