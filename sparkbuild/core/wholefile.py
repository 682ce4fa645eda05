"""Writing a file whole: at any moment, and after a power cut, the old or the new content is there.

What a killed writer left goes with the next write, of that file or of any in a folder of ours; what somebody writes
just now stays, since its lock is held (agent/wire/unfinished.py).
"""

from __future__ import annotations

import os
from contextlib import suppress

from sparkbuild.agent.wire import unfinished

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(path: str | os.PathLike[str], content: bytes, *, mode: int = 0o644, ours: bool, flush: bool = True) -> None:
    """Have a file hold `content`; on the disk when this returns, unless it is not to be flushed. `ours`: nobody else
    writes into its folder. Raises OSError; the old content is there then.
    """
    above, name = os.path.split(os.fspath(path))
    folder = os.open(above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        temporary, file = _begun(folder, name, mode)
        try:
            with os.fdopen(file, "wb") as stream:  # its lock is held until it has its name
                stream.write(content)
                stream.flush()
                os.fchmod(file, mode)
                if flush:
                    os.fsync(file)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):  # what went wrong first is to be told
                os.unlink(temporary, dir_fd=folder)
            raise
        unfinished.sweep(folder, "" if ours else name)
        if flush:
            os.fsync(folder)
    except OSError as error:
        if error.filename is None or not os.path.isabs(error.filename):
            error.filename = os.fspath(path)
        raise
    finally:
        os.close(folder)


def _begun(folder: int, name: str, mode: int) -> tuple[str, int]:
    """A new file whose writer is known to be at work. Several threads may write one, and processes of other pids."""
    while True:
        temporary = f"{name}.{int.from_bytes(os.urandom(4), 'big')}.tmp"
        with suppress(FileExistsError):
            file = os.open(temporary, _NEW, mode, dir_fd=folder)
            if unfinished.hold(file):
                return temporary, file
            os.close(file)
