"""Changing one string of a TOML file that people write: nothing else of it, not a byte, and never half of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import tomli

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.files.wholefile import replace
from sparkbuild.workspace.toml.scan import scan
from sparkbuild.workspace.toml.tomlfile import text_of


class Found(msgspec.Struct, frozen=True):
    """A string as it stands in a file: `span` is from its first quote to behind its last, in `text`, all of the file.

    `shown` is the path relative to the workspace.
    """

    path: str
    root: str
    shown: str
    line: int
    text: str
    span: tuple[int, int]
    value: str

    @property
    def where(self) -> str:
        """path:line, for messages."""
        return f"{self.shown}:{self.line}"

    def put(self, value: str) -> None:
        """Write another value in the quotes that are there; it must not need escapes. Raises ConfigError when the file
        is another than it was when the string was found, or cannot be written; nothing is written then.
        """
        start, end = self.span
        token = self.text[start:end]
        quote = token[:3] if token[:3] in {'"""', "'''"} else token[0]
        new = self.text[:start] + quote + value + quote + self.text[end:]
        if text_of(self.path, self.root) != self.text:
            raise changed(self.shown)
        try:
            replace(self.path, new)
        except OSError as error:
            found = error.strerror or str(error)
            raise ConfigError(
                f"{self.shown} cannot be written",
                where=self.where,
                found=found,
                wanted=f'"{value}"',
                next="make it writable and run again, or write the line by hand",
            ) from error


def find(path: Path | str, root: Path | str, *keys: str | int) -> Found:
    """The string under these keys. Raises ConfigError when the file cannot be read or has none there."""
    shown = os.path.relpath(path, root)
    text = text_of(path, root)
    document = scan(text)
    line, span = document.line(keys), document.strings.get(keys)
    try:
        value: Any = tomli.loads(text)
        for key in keys:
            value = value[key]
    except (ValueError, RecursionError) as error:  # it was TOML when the workspace was read
        raise changed(shown) from error
    except (LookupError, TypeError):
        value = None
    # The scanner need only be near for a message; here it has to be right.
    if span is None or tomli.loads(f"k = {text[slice(*span)]}")["k"] != value:
        name = ".".join(map(str, keys))
        raise ConfigError(f"`{name}` is no text that can be changed", where=f"{shown}:{line}", next="write it by hand")
    return Found(os.fspath(path), os.fspath(root), shown, line, text, span, value)


def changed(shown: str) -> ConfigError:
    """What is said of a file that another hand was at since it was read."""
    return ConfigError(
        f"{shown} was changed meanwhile; nothing was written", next="run again: what is there now is updated then"
    )
