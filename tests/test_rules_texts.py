"""Texts are no data: what an error says in words decides nothing. Who must tell two errors apart uses their class,
their `kind` or a field. What other programs say in words alone is read where the table below says, and nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import house

_WORDS = {"what", "found", "wanted", "next"}  # of an error that is ours
_TESTS = {"startswith", "endswith"}

# module -> whose words it reads, since they come without a code
OTHERS = {
    "sparkbuild.agent.docker.adopt": "docker's, on a full disk",
    "sparkbuild.agent.git.command": "git's",
    "sparkbuild.agent.git.pins": "git's",
    "sparkbuild.core.statefile": "sqlite's",
    "sparkbuild.core.writable": "sqlite's",
    "sparkbuild.nodes.engine": "http.client's",
    "sparkbuild.nodes.ssh.channel": "paramiko's",
    "sparkbuild.nodes.ssh.link": "paramiko's",
    "sparkbuild.plugin.adapters.dodofile": "doit's",
}


def _is_ours(node: ast.expr) -> bool:
    """`error.what`, `fields["next"]`."""
    if isinstance(node, ast.Attribute):
        return node.attr in _WORDS
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
        return False
    return node.slice.value in _WORDS and ast.unparse(node.value).split(".")[-1] in {"fields", "said"}


def _is_of_others(node: ast.expr) -> bool:
    """`str(error)`, `error.text`, `error.problem.lower()`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in {"lower", "strip"}:
            return _is_of_others(node.func.value)
        name = node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args else None
        return isinstance(name, ast.Name) and name.id in {"error", "failure"}
    is_error = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "error"
    return is_error and isinstance(node, ast.Attribute) and node.attr in {"text", "problem"}


def _tested(tree: ast.AST) -> Iterator[ast.expr]:
    """Texts that a condition is made of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield node.comparators[0]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Constant) and side.value and isinstance(side.value, str) for side in sides):
                yield from sides
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TESTS:
            yield node.func.value


def _places(tree: ast.AST) -> tuple[list[int], list[int]]:
    texts = list(_tested(tree))
    return [text.lineno for text in texts if _is_ours(text)], [text.lineno for text in texts if _is_of_others(text)]


def test_the_rule_sees_what_it_is_for() -> None:
    source = """
if "login" in error.what: pass
if fields["next"].endswith(WRITE): pass
if str(error) == "Channel closed.": pass
if "no space" in error.problem.lower(): pass
if error.found: pass
if one.what == other.what: pass
"""
    assert _places(ast.parse(source)) == ([2, 3], [4, 5])


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {house.dotted(path): ast.parse(path.read_text()) for path in house.modules() if not house.is_template(path)}


def test_no_text_of_ours_decides(trees: dict[str, ast.Module]) -> None:
    found = {name: places[0] for name, tree in trees.items() if (places := _places(tree))[0]}
    assert found == {}


def test_texts_of_others_are_read_where_it_is_said(trees: dict[str, ast.Module]) -> None:
    found = {name for name, tree in trees.items() if _places(tree)[1]}
    assert found == set(OTHERS), found ^ set(OTHERS)
