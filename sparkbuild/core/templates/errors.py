"""What is wrong with a template, with its own line, and what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.suggest import nearest

_SHOWN = 300  # characters of a template in a message


class TemplateError(ConfigError):
    """A template cannot be filled in. `text` is the template, `line` (from 1) the line in it.

    `where` is a file alone, until who knows the file's lines adds them.
    """

    text = ""
    line = 1


class Problem(NamedTuple):
    """What is wrong, on which line of the template, the name that was probably meant, and, where what is wrong is no
    name, what may stand there.
    """

    text: str
    line: int
    meant: str = ""
    wanted: str = ""


def refused(text: str, values: Mapping[str, Any], where: str, problem: Problem) -> TemplateError:
    """The error for a template."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    names = f"names: {', '.join(names_of(values))}"
    error = TemplateError(
        "a template cannot be filled in",
        where=where,
        found=f"{shown!r}: {problem.text}",
        wanted=problem.wanted or (f"did you mean `{problem.meant}`? {names}" if problem.meant else names),
    )
    error.text, error.line = text, problem.line
    return error


def names_of(values: Mapping[str, Any]) -> Iterator[str]:
    """What may stand in a template, in the order of the alphabet: `port`, `staged.weights`."""
    for name, value in sorted(values.items()):
        if not isinstance(value, Mapping):
            yield name
        elif not value:
            yield f"{name} (empty)"
        else:
            yield from (f"{name}.{inner}" for inner in sorted(value))


def meant_by(name: str, values: Mapping[str, Any], table: str) -> str:
    """The known name most like an unknown one of a table (`staged`; "" for the top), or ""."""
    if table:
        inner = nearest(name, values[table])
        return f"{table}.{inner}" if inner else ""
    return nearest(name, values) or next(
        (full for full in names_of(values) if full.rpartition(".")[2] == name and full != name), ""
    )
