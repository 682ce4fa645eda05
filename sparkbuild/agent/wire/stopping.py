"""Ending work that has something to clean up: a closed stdin, and SIGTERM, become an exception where the work is."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

GRACE = 8.0  # seconds to clean up in
CODE = 143


class StoppedError(BaseException):
    """The caller is gone, or told this process to end. Not an Exception: what handles failures lets it pass."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise StoppedError in the block, which must be in the main thread, when the work is to end; then end the process.
    For verbs with OWNS_STDIN. What is started in the block belongs to this process's group and is told as well.
    """

    def told(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up is not to be stopped
        raise StoppedError

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        with suppress(OSError):
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)
        os._exit(CODE)

    before = signal.signal(signal.SIGTERM, told)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except StoppedError:
        os._exit(CODE)
    finally:
        signal.signal(signal.SIGTERM, before)
