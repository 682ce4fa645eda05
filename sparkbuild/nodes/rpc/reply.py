"""Reading what an agent says: events, then a result or an error of this package's error tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sparkbuild.core import errors
from sparkbuild.nodes.rpc.shapes import is_event, result_of

_LONGEST = 65536  # bytes of a line that is no event
_CLASSES: dict[str, type[errors.SparkbuildError]] = {
    "": errors.SparkbuildError,
    "config": errors.ConfigError,
    "engine": errors.EngineDiedError,
    "integrity": errors.IntegrityError,
    "build": errors.BuildError,
    "gone": errors.UpstreamError,
    "node": errors.NodeError,
    "not pulled": errors.NotPulledError,
    "port": errors.PortInUseError,
    "space": errors.SpaceError,
}


class Reply:
    """The answer to one call, fed line by line."""

    def __init__(self, node: str, verb: str) -> None:
        self.node = node
        self.verb = verb
        self.result: dict[str, Any] | None = None
        self._error: errors.SparkbuildError | None = None

    def feed(self, line: bytes, on_event: Callable[[dict[str, Any]], None] | None) -> None:
        """Take one line of the agent's output."""
        try:
            event = msgspec.json.decode(line)
            kind = event.pop("event")
        except (msgspec.DecodeError, KeyError, AttributeError, TypeError, RecursionError):
            event, kind = {"text": line[:_LONGEST].decode(errors="replace").rstrip()}, "log"
        if not isinstance(kind, str):
            event, kind = {"text": line[:_LONGEST].decode(errors="replace").rstrip()}, "log"
        if kind == "result":
            self._take(event)
        elif kind == "error":
            self.result = {}
            self._error = error_of(self.node, event)
        elif on_event is not None and is_event(kind, event):
            on_event({"event": kind, **event})

    def _take(self, found: dict[str, Any]) -> None:
        try:
            self.result = result_of(self.node, self.verb, found)
        except errors.NodeError as error:
            self.result, self._error = {}, error

    def broken(self, stderr: str, code: int) -> None:
        """The agent ended without a result."""
        self.result = {}
        self._error = errors.NodeError(
            f"the agent on {self.node} ended in the middle of {self.verb!r}",
            found=_ending(code) + (f"\n{stderr.strip()[-1500:]}" if stderr.strip() else ""),
            next="run again: what was done is kept",
        )

    def outcome(self) -> dict[str, Any]:
        """The result; raises the error the agent reported."""
        if self._error is not None:
            raise self._error
        return self.result or {}


def _ending(code: int) -> str:
    if code == -1:  # ssh says so
        return "no exit code: it was killed"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def error_of(node: str, fields: Mapping[str, Any]) -> errors.SparkbuildError:
    """The error that an agent told, by the fields of its event; see agent.wire.protocol. What is no text is none."""
    told = {name: text for name, text in fields.items() if isinstance(text, str)}
    where = told.get("where", "")
    place = f"node {node}" + (f", {where}" if where else "")
    texts = {name: told.get(name, "") for name in ("found", "wanted", "next")}
    error_class = _CLASSES.get(told.get("kind", ""), errors.SparkbuildError)
    error = error_class(told.get("what") or "the agent failed", where=place, **texts)
    if isinstance(error, errors.UpstreamError):
        error.reached = True
    return error
