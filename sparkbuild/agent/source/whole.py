"""Is a file all there? Asked of files of which nobody knows a digest, before a byte of them is copied.

A pointer of git-lfs stands where a clone without git-lfs has a big file; a download that broke off leaves an empty or
a short one, and one that reserved its room first a file of zeros.

Downloads that did not end are known by the names that tools give to what is not all there yet. `x.incomplete`, `x.part`
and their like hold what came so far; `x.aria2` tells what is lacking of `x`, which has its full size from the start;
rsync writes into `.x.Ab12Cd` beside an older `x`. Either way the file beside is not what was asked for last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import closing

from sparkbuild.agent.disk import nas
from sparkbuild.agent.source import gguf, safetensors
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

_POINTER = b"version https://git-lfs.github.com/spec/v1"
_SMALL = 1024  # bytes; a pointer has some 130
_WEIGHTS = (".safetensors", ".gguf")
_SURELY = (".incomplete", ".aria2", ".crdownload")  # nobody gives these to a file that is whole
_BESIDE = (*_SURELY, ".part", ".partial", ".download")
_RSYNC = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}", re.DOTALL)


def refuse_part(path: str, name: str, size: int, again: str) -> None:
    """Raise AgentError, kind integrity, when the file at `path`, `name` in the source, is a part of a file, or stands
    for one. `again` is how it is fetched anew.
    """
    if not size and name.endswith(_WEIGHTS):
        raise _wrong("an empty file where weights belong", path, "0 bytes", "a whole file", again)
    if size <= _SMALL and (nas.small(path, _SMALL) or b"").startswith(_POINTER):
        what = "a pointer of git-lfs where a file belongs"
        raise _wrong(what, path, f"{size} bytes of text", "the file that it stands for", f"git lfs pull; or {again}")
    if name.endswith(_WEIGHTS):
        with closing(FileSource(path)) as source:
            (safetensors if name.endswith(".safetensors") else gguf).refuse_cut_off(source)
            source.check()


def _wrong(what: str, path: str, found: str, wanted: str, advice: str) -> AgentError:
    return integrity_error(what, where=path, found=found, wanted=wanted, next=advice)


def begun(there: Collection[str]) -> dict[str, str]:
    """Of paths in a folder: those of files of which a download did not end, and what is left of it there. The file
    itself may be among them or not.
    """
    names = set(there)
    left = {}
    for path in sorted(names):
        folder, name = os.path.split(path)
        end = next((end for end in _BESIDE if name.endswith(end) and name != end), "")
        written = None if end else _RSYNC.fullmatch(name)
        if not end and written is None:
            continue
        file = os.path.join(folder, name.removesuffix(end) if written is None else written[1])
        if file in names or end in _SURELY:
            left[file] = path
    return left
