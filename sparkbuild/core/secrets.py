"""Secrets: values by name, from the environment or the workspace's git-ignored `secrets.env`. Kept nowhere else."""

from __future__ import annotations

import os
import re

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.screen import complain

# Up to the last `@` before the path; a password with a slash in it makes what looks like a port that is no number.
_LOGIN_IN = re.compile(r"(?<=:)//(?:[^/]*|[^/@:\[]+:(?!\d*(?:/|$)).*)@")

_warned: set[str] = set()  # files of secrets that others may read, and that this was said of


def read_secrets(root: str, names: tuple[str, ...], where: str) -> dict[str, str]:
    """Values by name, from the environment, else from `secrets.env` (see `parse_secrets`) in the workspace."""
    if not names:
        return {}
    kept = {}
    path = os.path.join(root, "secrets.env")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            _warn_once(path, os.fstat(file.fileno()).st_mode)
            kept = parse_secrets(file.read())
    found = {name: os.environ.get(name) or kept.get(name, "") for name in names}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ConfigError(
            f"{'secret' if len(missing) == 1 else 'the secrets'} {', '.join(missing)}"
            f" {'has' if len(missing) == 1 else 'have'} no value",
            where=where,
            wanted="each in the environment, or in secrets.env beside config.toml:\n"
            + "\n".join(f"{name}=..." for name in missing),
        )
    return found


def parse_secrets(text: str) -> dict[str, str]:
    """NAME=value lines. Blanks around both are left out; the value is all the rest: quotes, blanks and # in it are part
    of it. An empty line, one without = and one that begins with # say nothing; of two the last counts.
    """
    found = {}
    for line in text.split("\n"):
        name, sep, value = line.strip().partition("=")
        if sep and not name.startswith("#"):
            found[name.strip()] = value.strip()
    return found


def _warn_once(path: str, mode: int) -> None:
    """Say that others may read the secrets; once, however many lanes have some."""
    if mode & 0o044 and path not in _warned:
        _warned.add(path)
        complain(f"warning: {path} can be read by other users of this machine: chmod 600 {path}")


def without_login(text: str) -> str:
    """The text, and no user name or password of a URL in it: it goes into messages."""
    return _LOGIN_IN.sub("//...@", text)


def has_login(text: str) -> bool:
    """Whether it has a URL with a user name or password."""
    return _LOGIN_IN.search(text) is not None
