"""The process that fills in a long template: {"text", "values"} as JSON on stdin, what came of it on stdout."""

from __future__ import annotations

import resource
import sys

import msgspec
from jinja2 import TemplateSyntaxError, nodes

from sparkbuild.core.templates.long import LESS, MEMORY, SECONDS, TEXT_LIMIT, Filled
from sparkbuild.core.templates.sandbox import Sandbox, bounded, problem_of


def refuse_files(tree: nodes.Template) -> None:
    """Raise TemplateSyntaxError for what would take in another file."""
    for node in tree.find_all((nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport)):
        raise TemplateSyntaxError(f"`{type(node).__name__.lower()}`: a template sees no other file", node.lineno)


def main() -> None:
    """Answer, within the limits; who exceeds them is ended by the kernel, or is out of memory."""
    request = msgspec.json.decode(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        sandbox = Sandbox(request["values"], long=True)
        tree = sandbox.parse(request["text"])
        refuse_files(tree)
        text = sandbox.from_string(tree).render(request["values"])
        bounded(len(text), TEXT_LIMIT)
        filled = Filled(text)
    except MemoryError:
        filled = Filled(problem=f"it takes more than {MEMORY >> 20} MB to fill in", wanted=LESS)
    except Exception as error:  # noqa: BLE001 - an expression may raise whatever Python does, and that is the answer
        filled = Filled("", *problem_of(error, long=True))
    sys.stdout.buffer.write(msgspec.json.encode(filled))
