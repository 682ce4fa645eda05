"""New lines of a lock go beside their like; comments and order stay."""

from __future__ import annotations

from sparkbuild.workspace.locks.text import update
from tests.workspace.helpers import FORMAT

TEXT = FORMAT + "# engine\nengine.repository=r\nengine.version=1\n\n# other\nother.version=2"


def test_beside():
    new = {"engine.ref": "main", "other.ref": "x", "new.ref": "y", "engine.version": "2"}
    assert update(TEXT, new, beside=True) == (
        FORMAT
        + "# engine\nengine.repository=r\nengine.version=2\nengine.ref=main\n\n# other\nother.version=2\nother.ref=x\n"
        "new.ref=y\n"
    )


def test_deeper_likeness_first():
    text = FORMAT + "e.submodule.a.commit=1\ne.time=3\n"
    expected = FORMAT + "e.submodule.a.commit=1\ne.submodule.a.url=2\ne.time=3\n"
    assert update(text, {"e.submodule.a.url": "2"}, beside=True) == expected


def test_without():
    assert update(TEXT, {}, without=["engine.version", "nothing", "format"]) == TEXT.replace("engine.version=1\n", "")


def test_appended_by_default():
    assert update(TEXT, {"engine.ref": "main"}) == TEXT + "\nengine.ref=main\n"
