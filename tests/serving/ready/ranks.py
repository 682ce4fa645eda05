"""Agents that stand for nodes which cannot be made to fail on demand: each plays one rank of a lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparkbuild.core.errors import NodeError
from sparkbuild.core.run import Run

Event = dict[str, Any]
Told = Callable[[Event], None]


class Rank:
    """A node's agent whose lane lives until it is told to die; `away`: the node is out of reach."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.listening = False
        self.age: float | None = None
        self.lines: list[str] = []
        self.ending: dict[str, Any] | BaseException | None = None
        self.asked: list[tuple[str, Any]] = []
        self.watchers = 0
        self._changed = threading.Condition()

    def set(self, **changes: Any) -> None:
        """Change what it plays."""
        with self._changed:
            for name, value in changes.items():
                setattr(self, name, value)
            self._changed.notify_all()

    def die(self, *lines: str, state: str = "") -> None:
        """Its process ends, and these are the last lines of its log."""
        self.set(ending={"alive": False, "listening": False, "last_lines": list(lines), "state": state})

    def end(self, **says: Any) -> None:
        """Its process ends, and the record says this."""
        self.set(ending={"alive": False, "listening": False, "last_lines": [], "state": "", **says})

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: Told | None = None, *, final: bool = False
    ) -> dict[str, Any]:
        """As an agent does."""
        self.asked.append((verb, {**request, "final": final}))
        if self.away:
            raise NodeError("cannot reach the node", found="no route to host")
        found: dict[str, Any] = getattr(self, f"_{verb}")(request, on_event)
        return found

    def _watch(self, request: Mapping[str, Any], on_event: Told | None) -> dict[str, Any]:
        assert on_event is not None
        assert request["until"] == "dead"
        self.watchers += 1
        try:
            while True:
                with self._changed:
                    lines, self.lines = self.lines, []
                    ending, away = self.ending, self.away
                    if not lines and ending is None and not away:
                        self._changed.wait(0.05)
                if away:
                    raise NodeError("the connection was lost")
                state = {"alive": True, "listening": self.listening, "lines": lines, "age": self.age}
                on_event({"event": "state", **state})
                if isinstance(ending, BaseException):
                    raise ending
                if ending is not None:
                    return ending
        finally:
            self.watchers -= 1


class Ranks(dict[str, Rank]):
    """Nodes by name."""

    def run(self, folder: Path) -> Run:
        """A run that reaches them."""
        return Run(root=folder, log=folder / "log", agent=self.__getitem__)


def ranks(count: int) -> Ranks:
    """dgx1, dgx2, ..."""
    return Ranks({f"dgx{number}": Rank() for number in range(1, count + 1)})
