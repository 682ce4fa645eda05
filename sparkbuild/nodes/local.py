"""The connection to this machine: the agent as a child process, no ssh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sparkbuild.core import child
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.ahead import Ahead
from sparkbuild.nodes.process import start
from sparkbuild.nodes.reply import Reply

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
        process = start(verb, final=final)
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
