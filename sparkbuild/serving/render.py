"""From templates to the exact argv and environment of one rank."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.template import fill
from sparkbuild.serving.lane import LaneSpec

MASK = "********"


class Launch(msgspec.Struct, frozen=True):
    """What is started on a node. `secrets` are the names in `env` whose values must never be shown."""

    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]

    def shown_env(self) -> dict[str, str]:
        """The environment with the secrets masked."""
        return {name: MASK if name in self.secrets else value for name, value in self.env.items()}


def context(root: str, store: str, node: str, spec: LaneSpec) -> dict[str, Any]:
    """What templates see. Paths are absolute on the node: they exist only here, never in a key."""
    image = os.path.join(store, spec.image)
    return {
        "image": {"python": os.path.join(image, "bin", "python"), "files": os.path.join(image, "files")},
        "staged": {block: os.path.normpath(os.path.join(store, path)) for block, path in spec.staged.items()},
        "recipe": {"name": spec.recipe, "dir": os.path.join(root, spec.folder)},
        "model_id": spec.model_id,
        "host": spec.host,
        "port": spec.port,
        "node": node,
        "rank": 0,
        "world_size": 1,
    }


def launch(spec: LaneSpec, values: dict[str, Any], secrets: dict[str, str]) -> Launch:
    """Fill in the recipe's command and environment."""
    where = f"{spec.folder}/recipe.toml"
    argv = tuple(fill(item, values, where) for item in spec.command)
    env = {name: fill(text, values, where) for name, text in spec.env.items()}
    leaked = [name for name, value in secrets.items() if value and any(value in item for item in argv)]
    if leaked:
        raise ConfigError(f"the value of secret {leaked[0]} would stand in the command line", where=where)
    return Launch(argv, {**env, **secrets}, tuple(secrets))


def read_secrets(root: str, names: tuple[str, ...], where: str) -> dict[str, str]:
    """Values by name, from the environment, else from `secrets.env` (NAME=value lines) in the workspace."""
    if not names:
        return {}
    kept = {}
    path = os.path.join(root, "secrets.env")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, sep, value = line.strip().partition("=")
                if sep and not name.startswith("#"):
                    kept[name.strip()] = value.strip()
    found = {name: os.environ.get(name) or kept.get(name, "") for name in names}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ConfigError(
            f"secret {missing[0]} has no value",
            where=where,
            wanted=f"{missing[0]} in the environment, or a line {missing[0]}=... in secrets.env beside config.toml",
        )
    return found
