"""Holding all nodes of a launch, so that two operators never launch on one at the same time."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sparkbuild.agent.wire.lanes import HOLD, HoldAsk
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.core.run import Agent, Event, call

WAIT = 30.0  # seconds for a node to say that it is held


class _EndHoldError(Exception):
    """Leaves the agent's call; closing its stdin ends the agent, and the kernel frees the claim."""


@contextmanager
def held(agent: Callable[[str], Agent], nodes: tuple[str, ...], recipe: str) -> Iterator[Callable[[], None]]:
    """Hold the nodes while the block runs; raises NodeError, naming who is at it, when one is held by somebody else.

    They are taken in the order of their names: two launches that share nodes meet on the first of these. What the block
    is given raises NodeError when a node is not held any more (its link was cut): to be called before each start.
    """
    claims: list[_Claim] = []

    def check() -> None:
        for claim in claims:
            claim.check()

    with ExitStack() as stack:
        for node in sorted(nodes):
            claim = _Claim(agent(node), node, recipe)
            stack.callback(claim.release)
            claim.take()
            claims.append(claim)
        yield check


class _Claim:
    def __init__(self, agent: Agent, node: str, recipe: str) -> None:
        self._agent = agent
        self._node = node
        self._request = HoldAsk(recipe=recipe, who=operator())
        self._held = threading.Event()
        self._over = threading.Event()  # the agent's call is over
        self._leave = threading.Event()
        self._error: SparkbuildError | None = None
        self._thread = threading.Thread(target=self._hold, daemon=True)

    def take(self) -> None:
        """Wait until the node is held."""
        self._thread.start()
        for _ in range(int(WAIT / 0.1)):
            if self._held.wait(0.1) or self._over.is_set():
                break
            cancel.check()
        if self._error is not None:
            raise self._error
        if not self._held.is_set():
            cancel.check()
            raise NodeError(f"{self._node} cannot be held for the launch", found=f"no answer within {WAIT:.0f} s")

    def check(self) -> None:
        """Raise when the node is held no more: somebody else may launch on it by now."""
        if self._over.is_set():
            cancel.check()
            raise NodeError(
                f"{self._node} was lost in the middle of the launch",
                found=str(self._error or "its agent ended"),
                next="doit health, then run again",
            )

    def release(self) -> None:
        """Let go; over when the node is free again."""
        self._leave.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)

    def _hold(self) -> None:
        try:
            call(self._agent, HOLD, self._request, self._on_event)
        except (_EndHoldError, Interrupted):
            pass
        except SparkbuildError as error:
            self._error = error
        finally:
            self._over.set()

    def _on_event(self, event: Event) -> None:
        if self._leave.is_set():
            raise _EndHoldError
        if event.get("event") == "held":
            self._held.set()


def operator() -> str:
    """Who does this: user, machine and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"
