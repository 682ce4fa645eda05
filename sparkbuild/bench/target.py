"""What a bench needs to know of the world at the moment it starts: where the lane is, where the harness is."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.core.errors import ConfigError


class BenchTarget(msgspec.Struct, frozen=True):
    """`base_url` without /v1; `python` and `files` of the harness image, `staged` folders by block id: absolute paths
    on the machine that runs the bench.
    """

    base_url: str
    model_id: str
    python: str
    files: str
    staged: dict[str, str] = {}


def fill(template: str, target: BenchTarget, where: str) -> str:
    """A template of the recipe's [bench] tables, strictly. Raises ConfigError with `where` for an unknown name."""
    if "{" not in template:
        return template
    import jinja2  # noqa: PLC0415 - 40 ms, only when a bench runs

    values: dict[str, Any] = {"staged": target.staged, "model_id": target.model_id}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - a path, not HTML
    try:
        return environment.from_string(template).render(values)
    except jinja2.TemplateError as error:
        blocks = ", ".join(f"staged.{name}" for name in target.staged) or "(nothing is staged)"
        raise ConfigError(
            "a template cannot be filled in",
            where=where,
            found=f"{template!r}: {error.message}",
            wanted=f"model_id, {blocks}",
        ) from error
