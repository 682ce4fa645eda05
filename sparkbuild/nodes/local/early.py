"""This machine's agent while the workspace is still being read: started, and asked what it was asked last time.

The same command in the same workspace most often asks the same. Its first question is kept in `.sparkbuild/asked/`, and
the next run hands it to the agent before it has read a single recipe; when its own question turns out to be the same,
to the byte, the answer is there already. An answer is never older than the run that uses it, and a question that
differs (another recipe, a moved workspace) is simply asked anew. Light to import, as `process` is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress

from sparkbuild.agent.wire.frames import WINDOW
from sparkbuild.core import wholefile
from sparkbuild.nodes.local.process import LocalPipes, OneVerb, start
from sparkbuild.nodes.rpc.process import AgentProcess, Request, no_check

_KEEP = 16  # questions, one for each command line
_VERB = "facts"
_LOADED = ("artifact", "image", "lane", "staged")  # what most commands look at
_GRACE = 0.5  # seconds that a question has to end which nobody wants answered


class Early:
    """An agent with last time's question, or, where there is none, an agent that loads what it will need until it is
    taken. Raises OSError when it cannot be started; whoever needs it then is told why.
    """

    def __init__(self, state: str, command: Sequence[str]) -> None:
        name = hashlib.sha256("\0".join(command).encode(errors="surrogateescape")).hexdigest()[:16]
        self._path = os.path.join(state, "asked", name)
        self._question = b""
        self._running: Request | None = None
        self.process: AgentProcess | None = None
        with suppress(OSError), open(self._path, "rb") as file:
            self._question = file.read(WINDOW)
        if self._question.startswith(b"{") and self._question.endswith(b"}\n"):
            self._running = AgentProcess("", OneVerb(start(_VERB))).begin(_VERB)
            self._running.send(self._question, no_check)
        else:  # there is none yet, or it is damaged
            self.process = AgentProcess("", LocalPipes(start()))
            self.process.load(_VERB, *_LOADED)

    def take(self) -> AgentProcess | None:
        """The agent that loads, for whoever wants one first; None for all others."""
        process, self.process = self.process, None
        return process

    def asked(self, verb: str, question: bytes) -> Request | None:
        """The request that was begun with just this question, if it is the first one of the run; None for any other."""
        if self._path == "" or verb != _VERB:
            return None
        path, self._path = self._path, ""
        if self._running is not None and question == self._question:
            return self._running
        if self._running is not None:
            self._running.stop(_GRACE)
        _keep(path, question)
        return None

    def close(self) -> None:
        """End what was not taken, and what was asked."""
        running, self._running = self._running, None
        for process in (self.take(), running and running.process):
            if process is not None:
                process.close()


def _keep(path: str, question: bytes) -> None:
    """For the next run. Only a shortcut: a workspace that cannot be written to does without."""
    folder = os.path.dirname(path)
    with suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        wholefile.replace(path, question, ours=True, flush=False)
        by_age = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(folder))
        for _, old in by_age[:-_KEEP]:
            os.unlink(old)
