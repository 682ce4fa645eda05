"""Reading one TOML file of the workspace into its shape. All its mistakes are one ConfigError with file:line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
import tomli

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.templates.errors import TemplateError
from sparkbuild.workspace.files.smallfile import UnreadableError, read_small
from sparkbuild.workspace.shapes.fieldtypes import Table
from sparkbuild.workspace.toml.mistakes import Mistake, as_error
from sparkbuild.workspace.toml.salvage import salvage

if TYPE_CHECKING:
    from sparkbuild.workspace.toml.scan import Document

Place = tuple[str | int, ...]  # from the top of the file: ("staging", 0, "src")
LIMIT = 1024 * 1024  # bytes; a recipe is a few KiB, and this is read on every `doit list`

# How tomli's words begin where something is given again: to a table, to one in braces, to a list.
_TWICE = ("Duplicate inline table key", "Cannot mutate immutable namespace", "Cannot declare", "Cannot overwrite")

T = TypeVar("T", bound=msgspec.Struct)


@overload
def read(path: Path | str, shape: type[T], root: Path | str) -> T: ...


@overload
def read(path: Path | str, shape: UnionType, root: Path | str) -> Any: ...


def read(path: Path | str, shape: type[T] | UnionType, root: Path | str) -> Any:
    """Read a TOML file into a struct, or into one of a union of them. `root` is the workspace, which paths in errors
    are relative to.

    Raises ConfigError: unreadable, too big, not UTF-8, not TOML, unknown or misplaced or missing keys, wrong values.
    All unknown, misplaced, missing and wrong keys of the file are in one error.
    """
    data = _parse(text_of(path, root), path, root)
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        refusal = str(error)
    shown = _shown(path, root)
    raise explain(path, shape, root) or ConfigError(f"{shown} does not fit", where=f"{shown}:1", found=refusal)


def read_through(path: Path | str, shape: type[T], root: Path | str) -> tuple[T, list[Mistake], frozenset[Place]]:
    """As `read`, for who has more to check: what could be read of the file, all mistakes against its shape, and the
    places which for that say nothing that counts (see salvage). Raises ConfigError for what is no TOML at all.
    """
    data = _parse(text_of(path, root), path, root)
    try:
        return msgspec.convert(data, shape), [], frozenset()
    except msgspec.ValidationError as error:
        refusal = str(error)
    found = mistakes(path, shape, root) or [Mistake(1, f"{_shown(path, root)} does not fit", found=refusal)]
    spec, lost = salvage(data, shape)
    return spec, found, lost


def explain(path: Path | str, shape: type[msgspec.Struct] | UnionType, root: Path | str) -> ConfigError | None:
    """All mistakes of a file against its shape as one error; None when there is nothing wrong with it."""
    found = mistakes(path, shape, root)
    return as_error(_shown(path, root), found) if found else None


def mistakes(path: Path | str, shape: type[msgspec.Struct] | UnionType, root: Path | str) -> list[Mistake]:
    """All mistakes of a file against its shape.

    Also finds keys which a header swallowed into a table of free names (`protect` below `[serve.env]`), where `read`
    cannot see that they are not meant to be there.
    """
    from sparkbuild.workspace.toml import check  # noqa: PLC0415 - start-up time: a healthy workspace never needs it

    text = text_of(path, root)
    return check.mistakes(_parse(text, path, root), shape, _scanned(text))


def _scanned(text: str) -> Document:
    from sparkbuild.workspace.toml.scan import scan  # noqa: PLC0415 - as above

    return scan(text)


def line_of(path: Path | str, root: Path | str, *keys: str | int) -> int:
    """The line on which a key stands, 1 when that cannot be told: `line_of(path, root, "staging", 0, "src")`."""
    try:
        return _scanned(text_of(path, root)).line(keys)
    except ConfigError:
        return 1


def located(error: TemplateError, root: Path | str) -> TemplateError:
    """An error of a template that stands in a TOML file of the workspace, with the line that it has there."""
    path, _, rest = error.where.partition(" ")
    try:
        line = _scanned(text_of(f"{root}/{path}", root)).line_of_text(error.text)
    except ConfigError:
        return error
    if line:
        error.where = f"{path}:{line + error.line - 1}{rest and f' {rest}'}"
    return error


def _shown(path: Path | str, root: Path | str) -> str:
    return os.path.relpath(path, root)


def text_of(path: Path | str, root: Path | str, limit: int = LIMIT) -> str:
    """A small file's text as it is, line ends too; `limit` in bytes. Raises ConfigError: unreadable, too big, not
    UTF-8.
    """
    try:
        data = read_small(path, limit)
    except UnreadableError as error:
        shown = _shown(path, root)
        raise ConfigError(
            f"{shown} {error.what}", where=f"{shown}:1", found=error.found, wanted=error.wanted
        ) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        shown = _shown(path, root)
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown} is not UTF-8",
            where=f"{shown}:{line}",
            found=f"byte 0x{data[error.start]:02x}",
            next="save the file as UTF-8",
        ) from error


def _parse(text: str, path: Path | str, root: Path | str) -> Table:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        line, found = error.lineno, error.msg
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets hundreds deep
        line, found = 1, str(error)
    shown = _shown(path, root)
    if text.startswith("\ufeff"):
        raise ConfigError(
            f"{shown} starts with a byte order mark", where=f"{shown}:1", next="save the file as UTF-8 without BOM"
        )
    lines = text.split("\n")
    code = lines[line - 1].strip()[:120] if line <= len(lines) else ""
    found, wanted, next_ = _in_words(found)
    found = f"{found}: {code}" if code else found
    raise ConfigError(f"{shown} is not TOML", where=f"{shown}:{line}", found=found, wanted=wanted, next=next_)


def _in_words(refusal: str) -> tuple[str, str, str]:
    """What tomli says, as (found, wanted, next)."""
    if not refusal.startswith(_TWICE):
        return refusal, "", ""
    names = re.findall(r"'([^']*)'", refusal)
    found = f"`{'.'.join(names)}` is there twice" if names else "a key that is there twice"
    return found, "each key and each table once", "take one of the two out, or write them as one"
