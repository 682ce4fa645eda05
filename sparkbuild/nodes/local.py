"""The connection to this machine: the agent as a child process, no ssh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sparkbuild.core import child
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.ahead import Ahead
from sparkbuild.nodes.reply import Reply

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

# -I: nothing of the environment or the current folder decides what the agent imports
_BOOT = f"import sys; sys.path.append({_PACKAGE_PARENT!r}); from sparkbuild.agent.main import main; sys.exit(main())"

_encoder = msgspec.json.Encoder(order="sorted")


class LocalAgent:
    """The agent of a node that is this machine. `store` is absolute."""

    def __init__(self, name: str, store: str, ahead: Ahead | None = None) -> None:
        self.name = name
        self.store = store
        self._ahead = ahead

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        on_event: Callable[[dict[str, Any]], None] | None = None,
        *,
        final: bool = False,
    ) -> dict[str, Any]:
        """Run a verb; see core.run.Agent."""
        question = _encoder.encode({**request, "store": self.store}) + b"\n"
        reply = Reply(self.name, verb)
        if verb == "facts" and self._ahead is not None:
            ahead, self._ahead = self._ahead, None  # for the first question of a run only
            answer = ahead.take(question)
            ahead.remember(question)
            if answer:
                for line in answer.splitlines():
                    reply.feed(line, on_event)
                if reply.result is not None:
                    return reply.outcome()
        return self._call(verb, question, Reply(self.name, verb), on_event, final=final)

    def _call(
        self,
        verb: str,
        question: bytes,
        reply: Reply,
        on_event: Callable[[dict[str, Any]], None] | None,
        *,
        final: bool,
    ) -> dict[str, Any]:
        process = _start(verb)
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("agent without pipes")
        try:
            try:
                stdin.write(question)
                stdin.flush()
            except BrokenPipeError:
                pass  # it ended early: its output says why
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


def ask_facts(question: bytes) -> bytes:
    """All that a facts agent prints for a question; b"" when it fails (the question is then asked again, properly)."""
    process = _start("facts")
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        return b""
    try:
        stdin.write(question)
        stdin.flush()
        return stdout.read()
    except (OSError, ValueError):
        return b""
    finally:
        for stream in (stdin, stdout, stderr):
            try:
                stream.close()
            except OSError:
                continue
        child.end(process, grace=2.0)


def _start(verb: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return child.spawn([sys.executable, "-I", "-c", _BOOT, verb], stdin=pipe, stdout=pipe, stderr=pipe)
