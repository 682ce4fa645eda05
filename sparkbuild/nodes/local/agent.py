"""The connection to this machine: the agent as a child process, no ssh."""

from __future__ import annotations

import socket

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.local.early import Early
from sparkbuild.nodes.local.process import LocalPipes, start
from sparkbuild.nodes.rpc.agent import NodeAgent
from sparkbuild.nodes.rpc.engine import unusable
from sparkbuild.nodes.rpc.process import AgentProcess, Request

_LOOKS = ("facts", "stage", "verify")  # these may wait for a NAS that hangs, and have nothing to clean up
_LOOKS_GRACE, _GRACE = 0.5, 2.0  # seconds
_AFTER = 0.5  # seconds that one which is killed may take to end


class LocalAgent(NodeAgent):
    """The agent of a node that is this machine. `early`: one that was started before, if there is one."""

    def __init__(
        self,
        name: str,
        store: str,
        early: Early | None = None,
        *,
        docker: str = "/var/run/docker.sock",
    ) -> None:
        super().__init__(name, store, docker)
        self._early = early

    def asked(self, verb: str, question: bytes) -> Request | None:
        """See NodeAgent."""
        return self._early.asked(verb, question) if self._early else None

    def started(self, *, final: bool) -> AgentProcess:
        """See NodeAgent."""
        early = self._early.take() if self._early else None
        return early or AgentProcess(self.name, LocalPipes(start(final=final)))

    def grace(self, verb: str) -> tuple[float, float]:
        """See NodeAgent."""
        seconds = _LOOKS_GRACE if verb in _LOOKS else _GRACE
        return seconds, seconds + _AFTER

    def dial(self) -> socket.socket:
        """A new connection to this machine's docker engine."""
        engine = socket.socket(socket.AF_UNIX)
        try:
            engine.connect(self._docker)
        except OSError as error:
            engine.close()
            raise unusable(self.name, self._docker, error.errno or 0, error.strerror or str(error)) from error
        return engine

    def lost(self) -> NodeError | None:
        """There is no way to this machine that could break."""
        return None
