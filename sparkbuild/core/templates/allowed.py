"""What may stand in the template of a value, and filling it in. jinja2 is loaded with this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateSyntaxError
from jinja2.nodes import Node

from sparkbuild.core.templates.errors import refused
from sparkbuild.core.templates.sandbox import NO_VALUE, Sandbox, bounded, problem_of

TEXT_LIMIT = 1 << 14  # characters of one template
_DEEPEST = 60
# All that may stand in a value, as jinja2.nodes calls it. Nothing of it repeats anything, so what a template costs is
# bounded by its length. There is no Call: a value needs none.
ALLOWED = frozenset(
    {
        "Template", "Output", "TemplateData", "Name", "Const", "Getattr", "Getitem", "Filter", "Test", "Keyword",
        "If", "CondExpr", "And", "Or", "Not", "Compare", "Operand", "Concat",
        "Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow", "Neg", "Pos",
    }
)  # fmt: skip


def fill(text: str, values: Mapping[str, Any], where: str) -> str:
    """See core.templates.value."""
    sandbox = Sandbox(values, long=False)
    try:
        bounded(len(text), TEXT_LIMIT)
        tree = sandbox.parse(text)
        check(tree)
        filled = sandbox.from_string(tree).render(values)
        bounded(len(filled))
    except Exception as error:  # an expression in a template may raise whatever Python does: 1/0, "a" + 1
        raise refused(text, values, where, problem_of(error, long=False)) from error
    return filled


def check(tree: Node) -> None:
    """Raise TemplateSyntaxError for the first node that may not stand in a value."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        name = type(node).__name__
        if name not in ALLOWED or getattr(node, "name", "") == "self":
            raise TemplateSyntaxError(f"`{name.lower()}` {NO_VALUE}", node.lineno)
        if depth > _DEEPEST:
            raise TemplateSyntaxError(f"it is more than {_DEEPEST} levels deep", node.lineno)
        waiting += [(inner, depth + 1) for inner in node.iter_child_nodes()]
