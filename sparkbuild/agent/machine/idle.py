"""Work that nobody waits for: this process reads and computes when nobody else wants the disk and the CPU."""

from __future__ import annotations

import contextlib
import os

# ioprio_set(2) has no name in python, nor in glibc: its number differs between machines
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS, _CLASS_IDLE, _SHIFT = 1, 3, 13
_NICE = 19


def be_idle() -> None:
    """Lower the priority of the calling thread for good, as far as that is allowed and its disk heeds it."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is None:
        return
    try:
        import ctypes  # noqa: PLC0415 - only for this call

        ctypes.CDLL(None, use_errno=True).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE << _SHIFT)
    except (ImportError, OSError, AttributeError):  # a python without ctypes
        return
