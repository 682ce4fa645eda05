"""What a bench needs to know of the world at the moment it starts: where the lane is, where the harness is."""

from __future__ import annotations

import msgspec

from sparkbuild.core.templates import value


class BenchTarget(msgspec.Struct, frozen=True):
    """`base_url` without /v1; `python` and `files` of the harness image, `staged` folders by block id: absolute paths
    on the machine that runs the bench, but for `staged`: these are on `node`, "" for this machine.
    """

    base_url: str
    model_id: str
    python: str
    files: str
    staged: dict[str, str] = {}
    node: str = ""


def fill(text: str, target: BenchTarget, where: str) -> str:
    """A template of the recipe's [bench] tables. Raises ConfigError with `where` for an unknown name."""
    return value.fill(text, {"staged": target.staged, "model_id": target.model_id}, where)
