"""Unpack a zstd stream with a library, from stdin to stdout: `python -I -S zstdlibrary.py LIBRARY`. In a process of its
own, so that what a library does to memory that is not its own ends a child, and not the agent.

Source of the calls: https://facebook.github.io/zstd/zstd_manual.html, "Streaming decompression".
"""

from __future__ import annotations

import ctypes
import sys


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer are the same but for `const`."""

    _fields_ = (("place", ctypes.c_void_p), ("size", ctypes.c_size_t), ("used", ctypes.c_size_t))


def main(path: str) -> str:
    """Unpack; what went wrong, or ""."""
    library = ctypes.CDLL(path)
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    for name in ("ZSTD_DStreamInSize", "ZSTD_DStreamOutSize", "ZSTD_decompressStream"):
        getattr(library, name).restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
    stream = library.ZSTD_createDStream()
    room = ctypes.create_string_buffer(library.ZSTD_DStreamOutSize())
    rest = 1  # bytes that the frame still wants, about; 0 at its end
    while data := sys.stdin.buffer.read(library.ZSTD_DStreamInSize()):
        kept = ctypes.create_string_buffer(data, len(data))
        given = _Buffer(ctypes.cast(kept, ctypes.c_void_p), len(data), 0)
        full = False
        while given.used < given.size or full:
            output = _Buffer(ctypes.cast(room, ctypes.c_void_p), len(room), 0)
            rest = library.ZSTD_decompressStream(stream, ctypes.byref(output), ctypes.byref(given))
            if library.ZSTD_isError(ctypes.c_size_t(rest)):
                return str(library.ZSTD_getErrorName(rest).decode())
            sys.stdout.buffer.write(memoryview(room)[: output.used])
            full = rest > 0 and output.used == output.size  # there may be more, without more input
    sys.stdout.buffer.flush()
    return "it ends early" if rest else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or 0)
