"""The agent of a node, whatever the way to it: started when it is first asked, and asked for the rest of the run."""

from __future__ import annotations

import os
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sparkbuild.agent.wire.frames import GONE
from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.rpc.connection import OnEvent
from sparkbuild.nodes.rpc.pieces import pieces
from sparkbuild.nodes.rpc.process import AgentProcess, Check, Request, no_check
from sparkbuild.nodes.rpc.reply import Reply

_encoder = msgspec.json.Encoder(order="sorted")
_STEP = 0.2  # seconds between two looks whether the run was told to stop


class NodeAgent:
    """See Connection. `store` is absolute on the node, `docker` the path of its engine's socket."""

    more: Mapping[str, Any] = {}  # what the agent learns with each request

    def __init__(self, name: str, store: str, docker: str) -> None:
        self.name = name
        self.store = store
        self._docker = docker
        self._making = threading.Lock()
        self._process: AgentProcess | None = None
        self._failure: tuple[float, NodeError] | None = None

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: OnEvent | None = None, *, final: bool = False
    ) -> dict[str, Any]:
        """Run a verb; see core.run.Agent."""
        reply, code = self._called(verb, request, on_event, final=final)
        if code == GONE:  # somebody removed it, or mounted something there: it is sent and started anew, once
            self.close()
            reply, _ = self._called(verb, request, on_event, final=final)
        return reply.outcome()

    def _called(
        self, verb: str, request: Mapping[str, Any], on_event: OnEvent | None, *, final: bool
    ) -> tuple[Reply, int]:
        """What came of it, and the exit code where there was no result."""
        check = no_check if final else cancel.check
        reply = Reply(self.name, verb)
        running = self._begin(verb, request, final=final)
        code = 0
        try:
            for line in running.lines(check):
                reply.feed(line, on_event)
                if reply.result is not None and verb == "facts":
                    break  # it holds nothing: nobody needs to wait for its end
            if reply.result is None:
                code = running.code
                reply.broken(running.said, code)
        finally:
            grace, wait = self.grace(verb)
            running.stop(grace, 0.0 if reply.result is not None and verb == "facts" else wait)
        return reply, code

    def put(self, path: str, source: str, sha256: str, on_event: OnEvent | None = None) -> int:
        """Send a file into the store; see Connection.put."""
        size = os.path.getsize(source)
        running = self._begin("put", {"path": path, "sha256": sha256, "size": size})
        reply, sent = Reply(self.name, "put"), 0
        try:
            event = self.first_event(running)
            if event["event"] == "ready":
                sent = self._sent(running, pieces(source, int(event["offset"]), size), reply, on_event)
            else:
                reply.feed(_encoder.encode(event), None)
        finally:
            running.stop(*self.grace("put"))
        reply.outcome()
        return sent

    def _sent(self, running: Request, content: Iterable[bytes], reply: Reply, on_event: OnEvent | None) -> int:
        # progress comes back meanwhile; unread, it would fill its window after some GB
        failure: list[BaseException] = []

        def listen() -> None:
            try:
                for line in running.lines(cancel.check):
                    reply.feed(line, on_event)
            except BaseException as error:  # noqa: BLE001 - raised where the file is sent
                failure.append(error)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        sent = 0
        for piece in content:
            if failure or not running.send(piece, cancel.check):
                break
            sent += len(piece)
        listener.join()
        if failure:
            raise failure[0]
        if reply.result is None:
            reply.broken(running.said, running.code)
        return sent

    def first_event(self, running: Request) -> dict[str, Any]:
        """The first line that is an event. Raises what a verb that ends without one is."""
        while line := running.line(cancel.check):
            try:
                event = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(event, dict) and "event" in event:
                return event
        reply = Reply(self.name, running.verb)
        reply.broken(running.said, running.code)
        return reply.outcome()

    def _begin(self, verb: str, request: Mapping[str, Any], *, final: bool = False) -> Request:
        check = no_check if final else cancel.check
        question = _encoder.encode({**request, "store": self.store, "docker": self._docker, **self.more}) + b"\n"
        running = self.asked(verb, question)
        if running is not None:
            return running
        schemes = {str(query.get("scheme")) for query in request.get("queries", ())} if verb == "facts" else set()
        running = self._running(check, final=final).begin(verb, *sorted(schemes))
        try:
            running.send(question, check)  # if it does not read: its output says why
        except BaseException:
            running.stop(*self.grace(verb))
            raise
        return running

    def _running(self, check: Check, *, final: bool) -> AgentProcess:
        """The agent, started now if it does not run. Several threads start it once, and fail with the same."""
        began = time.monotonic()
        while not self._making.acquire(timeout=_STEP):
            check()
        try:
            if self._process is None or not self._process.alive:
                if self._failure and self._failure[0] >= began:
                    raise self._failure[1]
                try:
                    self._process = self.started(final=final)
                except NodeError as error:
                    self._failure = time.monotonic(), error
                    raise
            return self._process
        finally:
            self._making.release()

    def asked(self, verb: str, question: bytes) -> Request | None:
        """A request with just this question that was begun already, if there is one."""

    @abstractmethod
    def started(self, *, final: bool) -> AgentProcess:
        """A new process of it. `final`: though the run was told to stop."""

    @abstractmethod
    def grace(self, verb: str) -> tuple[float, float]:
        """Seconds until a verb is killed that does not end as it is told to, and how long its end is waited for."""

    def close(self) -> None:
        """End it, and all that it works on. A later call would start it anew."""
        process, self._process = self._process, None
        if process is not None:
            process.close()
