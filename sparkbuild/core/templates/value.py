"""Filling in the short templates of values: a word of a command line, a path, a setting. No loops, in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkbuild.core.templates.errors import refused

if TYPE_CHECKING:
    from jinja2.nodes import Node

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
    """One jinja2 template. `where` is the file it was written in. Raises TemplateError whatever is wrong with it."""
    if "{" not in text:
        return text
    # here: jinja2 costs 40 ms, and listing tasks must not pay for it
    from sparkbuild.core.templates.sandbox import Sandbox, bounded, problem_of  # noqa: PLC0415

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
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - as above

    from sparkbuild.core.templates.sandbox import NO_VALUE  # noqa: PLC0415 - as above

    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        name = type(node).__name__
        if name not in ALLOWED or getattr(node, "name", "") == "self":
            raise TemplateSyntaxError(f"`{name.lower()}` {NO_VALUE}", node.lineno)
        if depth > _DEEPEST:
            raise TemplateSyntaxError(f"it is more than {_DEEPEST} levels deep", node.lineno)
        waiting += [(inner, depth + 1) for inner in node.iter_child_nodes()]
