"""Secrets: values by name, from the environment or the workspace's git-ignored `secrets.env`. Kept nowhere else."""

from __future__ import annotations

import os

from sparkbuild.core.errors import ConfigError


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
