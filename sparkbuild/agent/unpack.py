"""Unpack the agent on a node: beside its final name, compiled, flushed, then renamed. Runs out of the archive itself,
before anything of it is there, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

_KEEP = 3  # versions, beside the one that comes
_UNUSED = 14 * 86400.0  # seconds after which another version may go
_STALE = 86400.0  # seconds after which a half-made folder is nobody's


def main(archive: Any, request: dict[str, Any], look: Callable[[str], dict[str, Any] | None]) -> int:
    """Request {"store", "name"}; one JSON line on stdout, {"event": "result"}, an error, or {"event": "agent",
    "unsafe"}: `look` says who else may write to the way to a path. Returns the exit code.

    The modes are fixed, whatever the umask of the login is: code that others may write to is theirs.
    """
    folder = os.path.join(request["store"], "agent")
    os.umask(os.umask(0o022) | 0o022)
    try:
        unsafe = look(folder)
        if unsafe is not None:
            _say("agent", unsafe=unsafe)
            return 1
        os.makedirs(folder, exist_ok=True)
        final = os.path.join(folder, request["name"])
        _install(archive, final, f"{final}.{os.getpid()}.tmp")
        _tidy(folder, request["name"])
    except OSError as error:
        _say("error", kind="space" if error.errno in {28, 122} else "node", **_fields(error, request["store"]))
        return 1
    _say("result")
    return 0


def _say(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def _fields(error: OSError, store: str) -> dict[str, str]:
    user = str(os.geteuid())
    try:
        import pwd  # noqa: PLC0415 - only after a failure

        user = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        pass
    return {
        "what": "the store cannot be written to",
        "where": str(error.filename or store),
        "found": f"{error.strerror}, as user {user}",
        "wanted": "a folder that this user may write to, on a disk with room",
        "next": f"create it there, owned by {user}, or set another `store` in config.toml",
    }


def _install(archive: Any, final: str, temporary: str) -> None:
    try:
        os.mkdir(temporary)  # new, so that nobody else has it
        for item in archive.infolist():
            path = os.path.join(temporary, item.filename)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write(path, archive.read(item))
            compiled = py_compile.compile(
                path,
                dfile=os.path.join(final, item.filename),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            if compiled:
                os.chmod(compiled, 0o644)
                _flush(compiled)
        for base, _, _ in os.walk(temporary):
            os.chmod(base, 0o755)  # noqa: S103 - nobody but us may write to it
            _flush(base)
        try:
            os.rename(temporary, final)
        except OSError:
            if not _is_same(final, archive):
                os.rename(final, f"{temporary}.old")  # damaged: somebody removed or changed a part of it
                os.rename(temporary, final)
                shutil.rmtree(f"{temporary}.old", ignore_errors=True)
        _flush(os.path.dirname(final))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_same(final: str, archive: Any) -> bool:
    """True when another push was first."""
    try:
        for item in archive.infolist():
            with open(os.path.join(final, item.filename), "rb") as file:
                if file.read() != archive.read(item):
                    return False
    except OSError:
        return False
    return True


def _write(path: str, content: bytes) -> None:
    with open(path, "xb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _tidy(folder: str, name: str) -> None:
    """Versions that other installations used long ago, and what a push that was cut off left behind."""
    now = time.time()
    others = []
    for entry in os.scandir(folder):
        age = now - entry.stat(follow_symlinks=False).st_mtime
        if entry.name.endswith(".tmp"):
            others += [(age, entry.path)] if age > _STALE else []
        elif entry.name != name and entry.is_dir(follow_symlinks=False):
            others.append((age, entry.path))
    kept = sorted(pair for pair in others if not pair[1].endswith(".tmp"))[:_KEEP]
    for pair in others:
        if pair not in kept and (pair[0] > _UNUSED or pair[1].endswith(".tmp")):
            shutil.rmtree(pair[1], ignore_errors=True)
