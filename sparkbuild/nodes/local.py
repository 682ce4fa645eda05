"""The connection to this machine: the agent as a child process, no ssh."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparkbuild.core import child
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.reply import Reply

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

# -I: nothing of the environment or the current folder decides what the agent imports
_BOOT = f"import sys; sys.path.append({_PACKAGE_PARENT!r}); from sparkbuild.agent.main import main; sys.exit(main())"


class LocalAgent:
    """The agent of a node that is this machine. `store` is absolute."""

    def __init__(self, name: str, store: str) -> None:
        self.name = name
        self.store = store
        self._warm: subprocess.Popen[bytes] | None = None

    def warm(self) -> None:
        """Start the facts agent before its request is known; its start-up then costs no time of its own."""
        if self._warm is None:
            self._warm = self._start("facts")

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        on_event: Callable[[dict[str, Any]], None] | None = None,
        *,
        final: bool = False,
    ) -> dict[str, Any]:
        """Run a verb; see core.run.Agent."""
        warm, self._warm = (self._warm, None) if verb == "facts" else (None, self._warm)
        process = warm or self._start(verb)
        reply = Reply(self.name, verb)
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("agent without pipes")
        try:
            stdin.write(json.dumps({**request, "store": self.store}).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it ended early: its output says why
        try:
            for line in stdout:
                reply.feed(line, on_event)
            if not final:
                cancel.check()
            if reply.result is None:
                reply.broken(stderr.read().decode(errors="replace"), process.wait())
        finally:
            stdin.close()
            stdout.close()
            stderr.close()
            child.end(process, grace=2.0)
        return reply.outcome()

    def close(self) -> None:
        """End a warm agent that was never asked."""
        if self._warm is not None:
            for stream in (self._warm.stdin, self._warm.stdout, self._warm.stderr):
                if stream is not None:
                    stream.close()
            child.end(self._warm, grace=2.0)
            self._warm = None

    def _start(self, verb: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return child.spawn([sys.executable, "-I", "-c", _BOOT, verb], stdin=pipe, stdout=pipe, stderr=pipe)
