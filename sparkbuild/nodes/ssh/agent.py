"""The connection to another machine: its agent over ssh, sent there once for each version of it."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.rpc import pack, whose
from sparkbuild.nodes.rpc.connection import OnEvent
from sparkbuild.nodes.rpc.engine import unusable
from sparkbuild.nodes.rpc.pieces import pieces
from sparkbuild.nodes.rpc.reply import Reply
from sparkbuild.nodes.ssh import command, failures
from sparkbuild.nodes.ssh.command import Exec
from sparkbuild.nodes.ssh.link import Link
from sparkbuild.nodes.ssh.stream import hang_up, joined

if TYPE_CHECKING:
    import paramiko

_encoder = msgspec.json.Encoder(order="sorted")
_NOTICED = 0.5  # seconds
_MISSING = (127, 126)  # a shell's exit codes for a program that is not there, or is none


class SshAgent:
    """The agent of a node that is reached over ssh. `store` is absolute on the node."""

    def __init__(self, name: str, store: str, link: Link, *, python: str, docker: str) -> None:
        self.name = name
        self.store = store
        self._link = link
        self._python = python
        self._docker = docker
        self._pushing = threading.Lock()
        self._pushed = False
        self._carriers: set[paramiko.Transport] = set()  # of connections to the docker engine

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: OnEvent | None = None, *, final: bool = False
    ) -> dict[str, Any]:
        """Run a verb; see core.run.Agent."""
        question = self._question(request)
        while True:
            reply = Reply(self.name, verb)
            absent: list[dict[str, Any]] = []
            with self._start(verb, question, final=final, pulse=True) as running:
                for line in running.lines():
                    reply.feed(line, _unless_absent(absent, on_event))
                if not absent and reply.result is None:
                    self._broken(reply, running)
            if not absent:
                return reply.outcome()
            self._push(absent[0], final=final)

    def dial(self) -> socket.socket:
        """A new connection to the node's docker engine."""
        question = self._question({})
        while True:
            running = self._start("dial", question)
            try:
                event = self._first_event(running, "dial")
                if event["event"] == "ready":
                    # a connection that was lost before, and made anew since, is not why a later call breaks
                    self._carriers = {one for one in tuple(self._carriers) if one.is_active()}
                    self._carriers.add(running.channel.get_transport())
                    return joined(running.channel)
            except BaseException:
                hang_up(running.channel)
                raise
            hang_up(running.channel)
            if event["event"] == "agent":
                self._push(event)
                continue
            number = _errno(event.get("found", ""))
            user = self._link.target.user
            raise unusable(self.name, self._docker, number, str(event.get("what", "")), user)

    def lost(self) -> NodeError | None:
        """See Connection."""
        end = time.monotonic() + _NOTICED  # the channels of a connection end before it says so itself
        while True:
            for transport in tuple(self._carriers):
                if not transport.is_active():
                    self._carriers.discard(transport)
                    return self._link.lost(transport.get_exception())
            if time.monotonic() > end:
                return None
            time.sleep(0.05)

    def put(self, path: str, source: str, sha256: str, on_event: OnEvent | None = None) -> int:
        """Send a file into the store; see Connection.put."""
        size = os.path.getsize(source)
        question = self._question({"path": path, "sha256": sha256, "size": size})
        sent = 0
        while True:
            reply = Reply(self.name, "put")
            with self._start("put", question) as running:
                event = self._first_event(running, "put")
                if event["event"] == "ready":
                    sent = self._send(running, pieces(source, int(event["offset"]), size), reply, on_event)
                    reply.outcome()
                    return sent
                if event["event"] == "error":
                    reply.feed(_encoder.encode(event), None)
                    reply.outcome()
            self._push(event)

    def _send(self, running: Exec, content: Iterable[bytes], reply: Reply, on_event: OnEvent | None) -> int:
        # progress comes back meanwhile; unread, it would fill its window after some GB
        failure: list[BaseException] = []

        def listen() -> None:
            try:
                for line in running.lines():
                    reply.feed(line, on_event)
            except BaseException as error:  # noqa: BLE001 - raised where the file is sent
                failure.append(error)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        sent = 0
        for piece in content:
            if failure or not running.send(piece):
                break
            sent += len(piece)
        listener.join()
        if failure:
            raise failure[0]
        if reply.result is None:
            self._broken(reply, running)
        return sent

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def _question(self, request: Mapping[str, Any]) -> bytes:
        more = {"store": self.store, "docker": self._docker, "patience": command.PATIENCE, "remote": True}
        return _encoder.encode({**request, **more}) + b"\n"

    def _start(self, verb: str, question: bytes, *, final: bool = False, pulse: bool = False) -> Exec:
        running = Exec(self._link, pack.start_command(self._python, verb), final=final, pulse=pulse)
        try:
            running.send(question)  # if it does not read: its output says why
            begun = running.begin(pack.MARK)
        except BaseException:
            hang_up(running.channel)
            raise
        if begun == pack.EATEN:
            hang_up(running.channel)
            raise failures.eaten(self._link.target)
        return running

    def _first_event(self, running: Exec, verb: str) -> dict[str, Any]:
        """The first line that is an event."""
        while line := running.line():
            try:
                event = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                running.noise.append(line)
                continue
            if isinstance(event, dict) and "event" in event:
                return event
        reply = Reply(self.name, verb)
        self._broken(reply, running)
        return reply.outcome()

    def _broken(self, reply: Reply, running: Exec) -> None:
        """It ended without a result. NodeError when that is because there is no Python."""
        code = running.code()
        said = "\n".join([*(line.decode(errors="replace") for line in running.noise), running.stderr()]).strip()
        if code in _MISSING or (code == 1 and "ommand not found" in said and "Traceback" not in said):
            raise NodeError(
                f"{self.name} has no {self._python}",
                where=self._link.target.where,
                found=said.strip() or f"exit code {code}",
                wanted="Python 3.10 or newer; nothing needs to be installed in it",
                next="install it there, or set `python` in config.toml to its path",
            )
        reply.broken(said, code)

    def _unsafe(self, found: Mapping[str, Any]) -> NodeError:
        """Others may write to where the agent's code lies, or to the way there: it is not run."""
        what = f"the agent's code on {self.name} is not run"
        return whose.refusal(what, self.name, f"{self.store}/agent", found)

    def _push(self, absent: Mapping[str, Any], *, final: bool = False) -> None:
        """Send the agent, since this version of it is not there."""
        if not absent.get("fits"):
            raise NodeError(
                f"{self._python} on {self.name} is too old",
                where=self._link.target.where,
                found=f"Python {absent.get('python')}",
                wanted="Python 3.10 or newer",
                next="set `python` in config.toml to the path of a newer one",
            )
        if absent.get("unsafe"):
            raise self._unsafe(absent["unsafe"])
        with self._pushing:
            if self._pushed:
                return  # by another thread, since this one asked
            data = pack.archive()
            request = {"store": self.store, "name": pack.name(), "sha256": hashlib.sha256(data).hexdigest()}
            reply = Reply(self.name, "push")
            told: list[dict[str, Any]] = []
            with Exec(self._link, pack.unpack_command(self._python), final=final) as running:
                running.begin(pack.MARK)
                if running.send(_encoder.encode(request) + b"\n") and running.send(data):
                    running.end_input()
                for line in running.lines():
                    reply.feed(line, _unless_absent(told, None))
                if told:
                    raise self._unsafe(told[0]["unsafe"])
                if reply.result is None:
                    self._broken(reply, running)
            reply.outcome()
            self._pushed = True


def _unless_absent(absent: list[dict[str, Any]], on_event: OnEvent | None) -> Callable[[dict[str, Any]], None]:
    def event(found: dict[str, Any]) -> None:
        if found["event"] == "agent":
            absent.append(found)
        elif on_event is not None:
            on_event(found)

    return event


def _errno(name: str) -> int:
    import errno  # noqa: PLC0415

    return int(getattr(errno, name, 0)) if name.startswith("E") else 0
