"""The connection to another machine: its agent over ssh, sent there once for each version of it."""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from sparkbuild.agent.wire.frames import READY
from sparkbuild.agent.wire.protocol import SERVE
from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.rpc import pack, whose
from sparkbuild.nodes.rpc.agent import NodeAgent
from sparkbuild.nodes.rpc.engine import unusable
from sparkbuild.nodes.rpc.process import AgentProcess
from sparkbuild.nodes.rpc.reply import Reply
from sparkbuild.nodes.ssh import command, failures
from sparkbuild.nodes.ssh.command import Exec
from sparkbuild.nodes.ssh.link import Link
from sparkbuild.nodes.ssh.stream import hang_up, joined

_encoder = msgspec.json.Encoder(order="sorted")
_MISSING = (127, 126)  # a shell's exit codes for a program that is not there, or is none
_GRACE = 10.0  # seconds


class SshAgent(NodeAgent):
    """The agent of a node that is reached over ssh."""

    more = {"remote": True}  # noqa: RUF012

    def __init__(self, name: str, store: str, link: Link, *, python: str, docker: str) -> None:
        super().__init__(name, store, docker)
        self._link = link
        self._python = python
        self._carriers: set[AgentProcess] = set()  # of connections to the docker engine

    def started(self, *, final: bool) -> AgentProcess:
        """See NodeAgent. Sends the agent when this version of it is not there."""
        hello = _encoder.encode({"store": self.store, "patience": command.PATIENCE}) + b"\n"
        for attempt in range(2):
            running = Exec(self._link, pack.start_command(self._python, SERVE), final=final)
            try:
                absent = self._begun(running, hello)
                if absent is None:
                    return AgentProcess(self.name, SshPipes(running), command.PULSE)
            except BaseException:
                hang_up(running.channel)
                raise
            hang_up(running.channel)
            self._check(absent)
            if attempt == 0:
                self._push(final=final)
        raise NodeError(
            f"the agent was sent to {self.name}, and is not there",
            where=f"node {self.name}, {self.store}/agent",
            next="look who removes it there, and run again",
        )

    def _begun(self, running: Exec, hello: bytes) -> dict[str, Any] | None:
        """None when the agent takes requests, else what is said of one that is not there."""
        running.send(hello)  # if it does not read: its output says why
        if running.begin(pack.MARK, pulse=True) == pack.EATEN:
            raise failures.eaten(self._link.target)
        while line := running.line():
            if line == READY:
                return None
            try:
                event = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                running.noise.append(line)
                continue
            if isinstance(event, dict) and event.get("event") == "agent":
                return event
        reply = Reply(self.name, "start")
        self._broken(reply, running)
        return reply.outcome()

    def grace(self, verb: str) -> tuple[float, float]:
        """See NodeAgent. Nobody waits: the way may be broken."""
        del verb
        return _GRACE, 0.0

    def dial(self) -> socket.socket:
        """A new connection to the node's docker engine."""
        running = self._begin("dial", {})
        try:
            event = self.first_event(running)
            if event["event"] == "ready":
                # a connection that was lost before, and made anew since, is not why a later call breaks
                self._carriers = {one for one in tuple(self._carriers) if one.alive}
                self._carriers.add(running.process)
                return joined(running)
        except BaseException:
            running.close()
            raise
        running.close()
        number = _errno(event.get("found", ""))
        user = self._link.target.user
        raise unusable(self.name, self._docker, number, str(event.get("what", "")), user)

    def lost(self) -> NodeError | None:
        """See Connection."""
        for process in tuple(self._carriers):
            if not process.alive:
                self._carriers.discard(process)
                return process.lost()
        return None

    def close(self) -> None:
        """End the connection."""
        super().close()
        self._link.close()

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

    def _check(self, absent: Mapping[str, Any]) -> None:
        """Raise NodeError when an agent that is not there cannot be sent."""
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

    def _push(self, *, final: bool) -> None:
        """Send the agent."""
        data = pack.archive()
        request = {"store": self.store, "name": pack.name(), "sha256": hashlib.sha256(data).hexdigest()}
        reply = Reply(self.name, "push")
        told: list[dict[str, Any]] = []
        with Exec(self._link, pack.unpack_command(self._python), final=final) as running:
            running.begin(pack.MARK)
            if running.send(_encoder.encode(request) + b"\n") and running.send(data):
                running.end_input()
            for line in running.lines():
                reply.feed(line, lambda event: told.append(event) if event["event"] == "agent" else None)
            if told:
                raise self._unsafe(told[0]["unsafe"])
            if reply.result is None:
                self._broken(reply, running)
        reply.outcome()


class SshPipes:
    """See rpc.process.Pipes: a command that has begun. It goes on though the run is told to stop."""

    def __init__(self, running: Exec) -> None:
        self._running = running
        running.final = True

    def send(self, data: bytes) -> bool:
        """See Pipes."""
        try:
            return self._running.send(data)
        except NodeError:
            return False

    def end_input(self) -> None:
        """See Pipes."""
        self._running.end_input()

    def receive(self) -> bytes:
        """See Pipes."""
        try:
            return self._running.receive()
        except NodeError:
            return b""

    def ending(self) -> tuple[int, str]:
        """See Pipes."""
        try:
            return self._running.code(), self._running.stderr()
        except NodeError:
            return -1, ""

    def lost(self) -> NodeError | None:
        """See Pipes."""
        return self._running.lost()

    def close(self) -> None:
        """See Pipes."""
        hang_up(self._running.channel)


def _errno(name: str) -> int:
    return int(getattr(errno, name, 0)) if name.startswith("E") else 0
