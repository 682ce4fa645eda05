"""Loading dodo.py: what is wrong with it is one message with its line, not the frames of what loads it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

import sparkbuild
from sparkbuild.core.errors import SparkbuildError

_PACKAGE = os.path.dirname(os.path.abspath(sparkbuild.__file__))


@contextmanager
def users_code() -> Iterator[None]:
    """Turn an exception that comes out of the user's own Python into InvalidCommand, with its file and line.

    An exception out of sparkbuild itself goes through as it is: that is a bug of ours, and its frames are wanted.
    """
    try:
        yield
    except InvalidDodoFile as error:
        if "Could not find dodo file" not in str(error):
            raise
        raise InvalidCommand(_no_dodo_file()) from error
    except (SparkbuildError, InvalidCommand, InvalidTask, OSError):
        raise
    except Exception as error:
        place = _place(error)
        if not place:
            raise
        text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        lines = ["the tasks of this workspace cannot be loaded", f"  where:  {place}", f"  found:  {text}"]
        if isinstance(error, ModuleNotFoundError):
            lines.append("  next:   install it into the environment that doit runs in, or remove the import")
        raise InvalidCommand("\n".join(lines)) from error


def _place(error: BaseException) -> str:
    """file:line of the user's code that failed; "" when the innermost code is ours or a library that we called."""
    if isinstance(error, SyntaxError) and error.filename and not _is_ours(error.filename):
        return f"{os.path.relpath(error.filename)}:{error.lineno}"
    users, ours = "", False
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_ours(frame.filename):
            users, ours = "", True
        elif ours and _is_workspaces(frame.filename):
            users = f"{os.path.relpath(frame.filename)}:{frame.lineno}"
    return users


def _is_ours(path: str) -> bool:
    return os.path.abspath(path).startswith(_PACKAGE + os.sep)


def _is_workspaces(path: str) -> bool:
    """Below the workspace, its environments apart: the current folder is the workspace while dodo.py is loaded."""
    below = os.path.relpath(path)
    return not below.startswith((os.pardir, ".venv", "<")) and "site-packages" not in below


def _no_dodo_file() -> str:
    """No dodo.py in this folder: where the nearest one above is. It is not run unasked: it may be anybody's."""
    folder = os.getcwd()
    while not os.path.exists(os.path.join(folder, "dodo.py")):
        above = os.path.dirname(folder)
        if above == folder:
            made = "python -m sparkbuild init DIR makes a workspace"
            return f"there is no dodo.py here, nor in a folder above\n  where:  {os.getcwd()}\n  next:   {made}"
        folder = above
    return (
        f"there is no dodo.py in this folder; the workspace is above it\n  where:  {os.getcwd()}\n"
        f"  found:  {os.path.join(folder, 'dodo.py')}\n  next:   cd {folder}"
    )
