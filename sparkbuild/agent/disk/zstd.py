"""Zstandard streams, unpacked with what this node has: Python's own module (3.14 and newer), the program `zstd`, or the
library that dpkg brings, in a child process of its own.
"""

from __future__ import annotations

import ctypes.util
import glob
import io
import os
import shutil
import subprocess
import sys
import threading
from typing import IO, Any

from sparkbuild.agent.wire.protocol import config_error

try:
    from compression import zstd as _zstd  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # before 3.14
    _zstd = None

MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 20
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zstdlibrary.py")
_FLAWED = "not a whole zstd stream"


def unpacked(source: IO[bytes]) -> IO[bytes]:
    """What a compressed stream holds, as a file that is read once. Reading raises ValueError for what is no whole zstd
    stream; opening raises AgentError (kind "config") on a node that has none of the three.
    """
    if _zstd is not None:
        return _checked(_zstd, source)
    command = _command()
    if command is None:
        raise config_error(
            "this node knows no zstd, with which the content is compressed",
            found=f"Python {sys.version_info[0]}.{sys.version_info[1]}, no program zstd, no libzstd",
            wanted="one of: Python 3.14, the program zstd, libzstd.so.1",
            next="apt-get install zstd there, then run again",
        )
    return io.BufferedReader(_Piped(source, command), _BLOCK)


def _command() -> list[str] | None:
    """A program that unpacks its stdin to its stdout."""
    if program := shutil.which("zstd"):
        return [program, "-d", "-c", "-q"]
    there = glob.glob("/usr/lib/*/libzstd.so.1")  # find_library needs ldconfig or a compiler
    if library := there[0] if there else ctypes.util.find_library("zstd"):
        return [sys.executable, "-I", "-S", _LIBRARY, library]
    return None


def _checked(own: Any, source: IO[bytes]) -> IO[bytes]:
    class Checked(own.ZstdFile):  # type: ignore[misc]
        def read(self, size: int | None = -1) -> bytes:
            try:
                return bytes(super().read(-1 if size is None else size))
            except (own.ZstdError, EOFError) as error:
                raise ValueError(f"{_FLAWED}: {error}") from None

    return Checked(source)  # type: ignore[no-any-return,unused-ignore]


class _Piped(io.RawIOBase):
    """The output of a program whose input is a stream; a thread feeds it."""

    def __init__(self, source: IO[bytes], command: list[str]) -> None:
        super().__init__()
        self._source = source
        self._process = subprocess.Popen(  # noqa: S603 - a list, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._problem: Exception | None = None
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        out: Any = self._process.stdout
        count = int(out.readinto1(buffer))
        if count == 0:
            self._finish()
        return count

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
        super().close()

    def _feed(self) -> None:
        out: Any = self._process.stdin
        try:
            while block := self._source.read(_BLOCK):
                out.write(block)
        except BrokenPipeError:
            pass  # it has ended, and says why
        except Exception as error:  # noqa: BLE001 - raised where it is read
            self._problem = error
            self._process.kill()
        finally:
            try:
                out.close()
            except BrokenPipeError:
                self._problem = self._problem or ValueError(_FLAWED)

    def _finish(self) -> None:
        self._feeder.join()
        code = self._process.wait()
        if self._problem is not None:
            raise self._problem
        if code:
            said: Any = self._process.stderr
            text = said.read(4096).decode(errors="replace").strip()
            raise ValueError(f"{_FLAWED}: {text or f'exit code {code}'}")
