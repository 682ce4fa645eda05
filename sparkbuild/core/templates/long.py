"""Filling in a whole file that is a template, as a Dockerfile is. It may loop, so it is filled in by another process,
which has bounds of time and memory and is given nothing but the template and its values.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import sparkbuild
from sparkbuild.core import child
from sparkbuild.core.templates.errors import Problem, refused

SECONDS = 5  # of a processor
MEMORY = 512 << 20  # bytes of address space
TEXT_LIMIT = 1 << 20  # characters of what it becomes
LESS = "a template that loops over less"
_START = "import sys; sys.path.insert(0, sys.argv[1]); from sparkbuild.core.templates.process import main; main()"


class Filled(msgspec.Struct):
    """What the process says: the text, or what is wrong."""

    text: str = ""
    problem: str = ""
    line: int = 1
    meant: str = ""
    wanted: str = ""


def fill(text: str, values: Mapping[str, Any], where: str) -> str:
    """The template filled in. `where` is its file. Raises TemplateError whatever is wrong with it, with its line."""
    package = str(Path(sparkbuild.__file__).parents[1])
    # -I: no module of the folder that it was started in, and nothing of the environment
    argv = [sys.executable, "-I", "-X", "utf8", "-c", _START, package]
    process = child.spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={})
    said = b""
    try:
        if process.stdin and process.stdout:
            with process.stdin as pipe:
                pipe.write(msgspec.json.encode({"text": text, "values": dict(values)}))
            with process.stdout as pipe:
                said = pipe.read()
    finally:
        code = child.reap(process)
    if code:
        filled = Filled(
            problem=f"it takes more than {SECONDS} s or {MEMORY >> 20} MB to fill in (ended with {code})", wanted=LESS
        )
    else:
        filled = msgspec.json.decode(said, type=Filled)
    if filled.problem:
        error = refused(text, values, where, Problem(filled.problem, filled.line, filled.meant, filled.wanted))
        shown = text.splitlines()[filled.line - 1 : filled.line]
        error.where = f"{where}:{filled.line}"
        error.found = f"{filled.problem}: {shown[0].strip()[:200]}" if shown else filled.problem
        raise error
    return filled.text
