"""How the agent talks: one JSON request line on stdin, JSON lines on stdout, the last one a result or an error.

Events: {"event": "progress", "phase", "bytes", "total"} at least twice a second while bytes move, {"event": "log",
"text"}, and at the end {"event": "result", ...} or {"event": "error", "kind", "what", "where", "found", "wanted",
"next"}. Exit code 0 with a result, 1 with an error. A verb ends when its stdin closes, so that nothing works on after
its caller is gone. That stdin and stdout are those of one request; how many share a channel is in frames.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from functools import partial
from typing import Any

SERVE = "serve"  # the verb of an agent that takes frames
_SIGTERM = 15  # importing `signal` takes longer than most looks


class AgentError(Exception):
    """A failure the operator should read. `kind` picks the error class on the calling side:
    integrity, space, port, engine, config, build, node, "not pulled" (docker does not pull an image), gone (who was
    asked answered, and does not have it), or "" for the base class.
    """

    def __init__(
        self,
        what: str,
        *,
        kind: str = "",
        where: str = "",
        found: str = "",
        wanted: str = "",
        next: str = "",  # noqa: A002
    ) -> None:
        super().__init__(what)
        self.fields = {"kind": kind, "what": what, "where": where, "found": found, "wanted": wanted, "next": next}


config_error = partial(AgentError, kind="config")
integrity_error = partial(AgentError, kind="integrity")


class Reporter:
    """Writes events; progress at most four times a second, so that a fast copy does not drown its reader."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last = 0.0
        self._told = ("", -1)

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event line."""
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, separators=(",", ":"))
        with self._guard:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def log(self, text: str) -> None:
        """A line for the step's log."""
        self.emit("log", text=text)

    def progress(self, phase: str, done: int, total: int | None) -> None:
        """Bytes done of bytes in total (None = not known)."""
        now = time.monotonic()
        at_end = total is not None and done >= total and self._told != (phase, done)
        if now - self._last >= 0.25 or at_end:
            self._last, self._told = now, (phase, done)
            self.emit("progress", phase=phase, bytes=done, total=total)


def end_with_stdin() -> None:
    """End this process when stdin closes: the caller is gone. Copies are resumable, so a hard exit is safe."""

    def watch() -> None:
        # os.read on the descriptor, not sys.stdin: a thread inside sys.stdin's lock aborts the interpreter at exit
        while os.read(0, 4096):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, _SIGTERM)  # what it started (pip) ends as well; a lane has a session of its own
        os._exit(143)

    threading.Thread(target=watch, daemon=True).start()
