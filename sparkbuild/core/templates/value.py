"""Filling in the short templates of values: a word of a command line, a path, a setting. No loops, in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def fill(text: str, values: Mapping[str, Any], where: str) -> str:
    """One jinja2 template. `where` is the file it was written in. Raises TemplateError whatever is wrong with it."""
    if "{" not in text:
        return text
    from sparkbuild.core.templates import allowed  # noqa: PLC0415 - jinja2 costs 40 ms, and most values are no templates

    return allowed.fill(text, values, where)
