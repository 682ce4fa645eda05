"""The connection to this machine: the agent as a child process, no ssh."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sparkbuild.core import child
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.local.ahead import Ahead
from sparkbuild.nodes.local.process import lines, start
from sparkbuild.nodes.rpc.reply import Reply

_LOOKS = ("facts", "stage", "verify")  # these may wait for a NAS that hangs, and have nothing to clean up
_LOOKS_GRACE = 0.5  # seconds

_encoder = msgspec.json.Encoder(order="sorted")


class LocalAgent:
    """The agent of a node that is this machine. `store` is absolute, `docker` the path of the engine's socket."""

    def __init__(
        self, name: str, store: str, ahead: Ahead | None = None, *, docker: str = "/var/run/docker.sock"
    ) -> None:
        self.name = name
        self.store = store
        self._docker = docker
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
        question = self._question(request)
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

    def _question(self, request: Mapping[str, Any]) -> bytes:
        return _encoder.encode({**request, "store": self.store, "docker": self._docker}) + b"\n"

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
            for line in lines(stdout, lambda: cancel.stopped and not final):
                reply.feed(line, on_event)
            if not final:
                cancel.check()
            if reply.result is None:
                reply.broken(stderr.read().decode(errors="replace"), process.wait())
        finally:
            for stream in (stdin, stdout, stderr):
                with contextlib.suppress(BrokenPipeError):  # what it did not read any more is still in the buffer
                    stream.close()
            child.end(process, grace=_LOOKS_GRACE if verb in _LOOKS else 2.0)
        return reply.outcome()

    def dial(self) -> socket.socket:
        """A new connection to this machine's docker engine."""
        engine = socket.socket(socket.AF_UNIX)
        try:
            engine.connect(self._docker)
        except OSError as error:
            from sparkbuild.nodes.rpc.engine import unusable  # noqa: PLC0415 - only after a failure

            engine.close()
            raise unusable(self.name, self._docker, error.errno or 0, error.strerror or str(error)) from error
        return engine

    def lost(self) -> None:
        """There is no way to this machine that could break."""

    def put(self, path: str, source: str, sha256: str, on_event: Callable[[dict[str, Any]], None] | None = None) -> int:
        """Copy a file into the store; see Connection.put."""
        from sparkbuild.nodes.rpc.pieces import pieces  # noqa: PLC0415 - rarely needed

        size = os.path.getsize(source)
        question = self._question({"path": path, "sha256": sha256, "size": size})
        process = start("put")
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("agent without pipes")
        reply, sent = Reply(self.name, "put"), 0

        def ready(event: dict[str, Any]) -> None:
            nonlocal sent
            if event["event"] != "ready":
                return on_event(event) if on_event else None
            try:
                for piece in pieces(source, int(event["offset"]), size):
                    cancel.check()
                    stdin.write(piece)
                    sent += len(piece)
                stdin.flush()
            except BrokenPipeError:
                pass  # it ended early: its output says why
            return None

        try:
            stdin.write(question)
            stdin.flush()
            for line in stdout:
                reply.feed(line, ready)
            cancel.check()
            if reply.result is None:
                reply.broken(stderr.read().decode(errors="replace"), process.wait())
        finally:
            for stream in (stdin, stdout, stderr):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            child.end(process, grace=2.0)
        reply.outcome()
        return sent

    def close(self) -> None:
        """Nothing is kept open between calls."""
