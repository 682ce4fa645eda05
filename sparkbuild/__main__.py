"""`python -m sparkbuild`: what is needed before there is a workspace. Everything else is a `doit` command in one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from sparkbuild import __version__
from sparkbuild.core.errors import SparkbuildError

NOT_WRITTEN, CLOSED_PIPE = 3, 141  # as `doit` ends when what it prints cannot be written, or nobody reads it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 refused, 2 wrong arguments, 3 what it prints cannot be
    written (what was to be made is made), 141 nobody reads it.
    """
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        return CLOSED_PIPE
    except OSError as error:
        if error.filename is not None:
            raise
        _discard()
        found = error.strerror or error
        sys.stderr.write(f"ERROR: what this command prints cannot be written\n  found:  {found}\n")
        sys.stderr.write("  next:   df where its output goes to; a workspace that it was to write is there: ls DIR\n")
        return NOT_WRITTEN
    return code


def _discard() -> None:
    """Python would try again at its end, and complain in words of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sparkbuild",
        description="An incremental build system for serving language models. In a workspace, use `doit`.",
    )
    # argparse's own action keeps silent about a version that could not be written
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    make = commands.add_parser("init", help="write a new workspace", description="Write a new workspace into DIR.")
    make.add_argument("dir", metavar="DIR", help="a new folder, or one that exists, such as a git repository")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:  # it printed its help, or what is wrong
        return end.code if isinstance(end.code, int) else 0
    if arguments.version:
        sys.stdout.write(f"sparkbuild {__version__}\n")
        return 0
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return _init(arguments.dir)
    except SparkbuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _terminated(signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)  # so that what was half written is taken back


def _init(folder: str) -> int:
    from sparkbuild.workspace.init import init  # noqa: PLC0415 - `--version` must not pay for it

    written = init(folder)
    lines = [f"wrote a workspace into {written.root}", *(f"  {name}" for name in written.files)]
    if written.ignored:
        lines.append(f"  .gitignore: added {', '.join(written.ignored)}")
    lines.append("next: make a recipe out of recipes/example/recipe.toml.example, then `doit list` in that folder")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
