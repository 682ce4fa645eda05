"""Both programs name the same shapes: what agent/wire promises of a verb or of a look is what the agent gives."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent import wire
from sparkbuild.agent.facts import OBSERVERS
from sparkbuild.agent.ledger import index
from sparkbuild.agent.main import VERBS
from sparkbuild.agent.wire.staging import inventory
from sparkbuild.agent.wire.verbs import Absent, Look, Verb

AGENT = Path(wire.__file__).parent.parent


def constants() -> Iterator[Any]:
    for found in pkgutil.walk_packages(wire.__path__, f"{wire.__name__}."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, Verb | Look):
                yield value


def test_an_entry_of_the_index_is_told_as_it_is() -> None:
    assert index.Entry.__annotations__.keys() == inventory.Entry.__annotations__.keys()


def annotations(module: str, function: str) -> tuple[str, str]:
    """Of the function's first parameter and of what it returns, as the source has them."""
    tree = ast.parse((AGENT / f"{module.replace('.', '/')}.py").read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    first, gives = found.args.args[0].annotation, found.returns
    assert first is not None
    assert gives is not None
    return ast.unparse(first), ast.unparse(gives).removesuffix(" | None")


@pytest.mark.parametrize("word", sorted({id(word): word for word in constants()}.values()), ids=str)
def test_what_the_agent_gives_is_what_the_caller_is_promised(word: Any) -> None:
    is_verb = isinstance(word, Verb)
    module, function = (VERBS[word], "run") if is_verb else (OBSERVERS[word], "observe")
    shapes = {word.result if is_verb else word.fact, word.absent or Absent} - {Absent}
    asked, given = annotations(module, function)
    assert "Any" not in asked
    assert given == "Fact" or {shape.__name__ for shape in shapes} <= set(given.split(" | "))
