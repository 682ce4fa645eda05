"""Asking this machine's agent last time's question while the workspace is still being read.

The same command in the same workspace most often asks the same. The question is kept in `.sparkbuild/ahead/`, and the
next run hands it to an agent before it has read a single recipe; when its own question turns out to be the same, to
the byte, the answer is already there. An answer is never older than the run that uses it, and a question that differs
(another recipe, a moved workspace) is simply asked anew.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence

from sparkbuild.core import wholefile

KEEP = 16  # questions, one per command line

Ask = Callable[[bytes], bytes]


class Ahead:
    """One question asked early, or none."""

    def __init__(self, folder: str, command: Sequence[str], ask: Ask) -> None:
        self._path = os.path.join(folder, hashlib.sha256("\0".join(command).encode()).hexdigest()[:16])
        self._ask = ask
        self._answer = b""
        self._thread: threading.Thread | None = None
        try:
            with open(self._path, "rb") as file:
                self.question = file.read()
        except OSError:
            self.question = b""

    def start(self) -> None:
        """Ask, if there is something to ask."""
        if self.question:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._ask(self.question)
        except (SystemExit, OSError):  # told to stop meanwhile; or it cannot be started, which asking it again tells
            self._answer = b""

    def take(self, question: bytes) -> bytes:
        """The answer to exactly this question, b"" when it was not asked. An answer is given once."""
        thread, self._thread = self._thread, None
        if thread is None or question != self.question:
            return b""
        thread.join()
        return self._answer

    def remember(self, question: bytes) -> None:
        """Keep the question for the next run. Only a shortcut: a workspace that cannot be written to does without."""
        if question == self.question:
            return
        folder = os.path.dirname(self._path)
        try:
            os.makedirs(folder, exist_ok=True)
            wholefile.replace(self._path, question, ours=True, flush=False)
            kept = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(folder))
            for _, path in kept[:-KEEP]:
                os.unlink(path)
        except OSError:
            return
