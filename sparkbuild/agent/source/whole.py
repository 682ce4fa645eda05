"""Is a file all there? Asked of files of which nobody knows a digest, before a byte of them is copied.

A pointer of git-lfs stands where a clone without git-lfs has a big file; a download that broke off leaves an empty or
a short one, and one that reserved its room first a file of zeros.
"""

from __future__ import annotations

from sparkbuild.agent.disk import nas
from sparkbuild.agent.source import gguf, safetensors
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

_POINTER = b"version https://git-lfs.github.com/spec/v1"
_SMALL = 1024  # bytes; a pointer has some 130
_WEIGHTS = (".safetensors", ".gguf")


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
        source = FileSource(path)
        try:
            (safetensors if name.endswith(".safetensors") else gguf).refuse_cut_off(source)
            source.check()
        finally:
            source.close()


def _wrong(what: str, path: str, found: str, wanted: str, advice: str) -> AgentError:
    return integrity_error(what, where=path, found=found, wanted=wanted, next=advice)
