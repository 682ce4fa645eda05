"""Zips that others wrote: what Python's reader raises for one that is damaged or cannot be read."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkbuild.agent.wire.protocol import AgentError

try:
    from lzma import LZMAError
except ImportError:  # a Python that was built without it, whose zipfile says NotImplementedError
    LZMAError = zipfile.BadZipFile  # type: ignore[misc, assignment]

# RuntimeError: encrypted, or of a kind that is not implemented.
_DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, ValueError, struct.error)


@contextmanager
def whole(refused: Callable[[str], AgentError]) -> Iterator[None]:
    """Where the block finds the archive to be damaged, raise what `refused` makes of it. Errors of the disk pass."""
    try:
        yield
    except _DAMAGE as error:
        raise refused(str(error) or type(error).__name__) from error
    except OSError as error:
        if error.errno not in {errno.EINVAL, None}:
            raise
        # a place before the archive's start is an EINVAL; without a number it is a stream of bz2 that is none
        raise refused("a place before its start" if error.errno else str(error)) from error
