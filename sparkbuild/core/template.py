"""Filling in templates, strictly: an unknown name is an error that lists the known ones, not an empty string."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparkbuild.core.errors import ConfigError


def fill(text: str, values: Mapping[str, Any], where: str) -> str:
    """One jinja2 template. `where` is the file it was written in. Raises ConfigError whatever is wrong with it."""
    if "{" not in text:
        return text
    import jinja2  # noqa: PLC0415 - costs 40 ms, and listing tasks must not pay for it

    # for argv, paths and settings: nothing of this is HTML
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701
    try:
        return environment.from_string(text).render(values)
    except Exception as error:  # an expression in a template may raise whatever Python does: 1/0, "a" + 1
        raise ConfigError(
            "a template cannot be filled in",
            where=where,
            found=f"{text!r}: {error}",
            wanted=f"names: {', '.join(_names(values))}",
        ) from error


def _names(values: Mapping[str, Any]) -> Iterator[str]:
    """What may stand in a template, in the order of the alphabet: `port`, `staged.weights`."""
    for name, value in sorted(values.items()):
        if not isinstance(value, Mapping):
            yield name
        elif not value:
            yield f"{name} (empty)"
        else:
            yield from (f"{name}.{inner}" for inner in sorted(value))
