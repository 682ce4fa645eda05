"""What others wrote is filled in by core/templates alone, in its sandbox; and what a value may say is a short list."""

from __future__ import annotations

import ast
from pathlib import Path

from sparkbuild.core.templates.allowed import ALLOWED

PACKAGE = Path(__file__).parents[1] / "sparkbuild"
REPEATS_OR_REACHES = {
    "For",
    "Call",
    "Macro",
    "CallBlock",
    "Include",
    "Import",
    "FromImport",
    "Extends",
    "Block",
    "Assign",
}


def test_jinja2_is_used_in_one_place():
    users = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.partition(".")[0] == "jinja2" for name in names):
                users.add(path.parent.relative_to(PACKAGE).as_posix())
    assert users == {"core/templates"}


def test_what_a_value_may_say_repeats_nothing_and_reaches_nothing():
    assert not ALLOWED & REPEATS_OR_REACHES
