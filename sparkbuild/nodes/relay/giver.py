"""A post: a verb of the agent that goes on in the background on one node and gives bytes out there (`relay`, `give`),
until it is told to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.core.run import Agent, Event, OnEvent
from sparkbuild.nodes.relay.arrival import Arrival

WAIT = 30.0  # seconds for it to say where it gives out


class _EndPostError(Exception):
    """Leaves the agent's call; closing its stdin ends the agent."""


class Post:
    """The verb says {"event": "serving", "ports": {address: port}} when it gives out, and beats. `ports`: those."""

    def __init__(self, agent: Agent, node: str, verb: str, request: Mapping[str, object]) -> None:
        self.node = node
        self._verb = verb
        self.ports: dict[str, int] = {}
        self._agent = agent
        self._request = request
        self._serving = threading.Event()
        self._over = threading.Event()
        self._leave = threading.Event()
        self._error: BaseException | None = None
        self._arrival: Arrival | None = None
        self._on_event: OnEvent | None = None
        self._thread = threading.Thread(target=self._work, name=f"{verb} {node}", daemon=True)

    def watch(self, arrival: Arrival, on_event: OnEvent) -> None:
        """Tell of what arrives, and whether it does."""
        self._arrival = arrival
        self._on_event = on_event

    def start(self) -> None:
        """Until it gives out; raises what keeps it from that."""
        self._thread.start()
        end = time.monotonic() + WAIT
        while not self._serving.wait(0.1) and not self._over.is_set() and time.monotonic() < end:
            cancel.check()
        if self._error is not None:
            raise self._error
        if not self._serving.is_set():
            cancel.check()
            raise NodeError(f"{self.node} cannot pass anything on", found=f"no answer within {WAIT:.0f} s")

    @property
    def alive(self) -> bool:
        """Whether it gives out."""
        return self._serving.is_set() and not self._over.is_set()

    def leave(self) -> None:
        """Let it end, without waiting for that."""
        self._leave.set()

    def stop(self) -> None:
        """End it, and wait for that."""
        self.leave()
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)

    def _work(self) -> None:
        try:
            self._agent.call(self._verb, self._request, self._event, final=True)
        except (_EndPostError, Interrupted):
            pass
        except SparkbuildError as error:
            self._error = error
        finally:
            self._over.set()
            if self._arrival is not None and not self._arrival.complete.is_set():
                self._arrival.fail(self._error or NodeError(f"{self.node} receives no more"))

    def _event(self, event: Event) -> None:
        if self._leave.is_set() or cancel.stopped:
            raise _EndPostError
        kind = event.get("event")
        if kind == "serving":
            self.ports = {str(address): int(port) for address, port in event["ports"].items()}
            self._serving.set()
        elif kind == "complete" and self._arrival is not None:
            self._arrival.received = int(event["bytes"])
            self._arrival.complete.set()
        elif kind in {"progress", "log"} and self._on_event is not None:
            self._on_event(event)
