"""`python -m sparkbuild`: what is needed before there is a workspace. Everything else is a `doit` command in one."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from sparkbuild import __version__
from sparkbuild.core.errors import SparkbuildError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 refused, 2 wrong arguments)."""
    parser = argparse.ArgumentParser(
        prog="python -m sparkbuild",
        description="An incremental build system for serving language models. In a workspace, use `doit`.",
    )
    parser.add_argument("--version", action="version", version=f"sparkbuild {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    make = commands.add_parser("init", help="write a new workspace", description="Write a new workspace into DIR.")
    make.add_argument("dir", metavar="DIR", help="a new folder, or one that exists, such as a git repository")
    arguments = parser.parse_args(argv)
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
