"""The shapes of what a node answers, and the one place where they are held against it: what comes behind may rely on
them. An answer of another shape is an error of that node, and of nothing else.

Answers are made of files and programs of the node (records, ledgers, docker), so that an agent of the right version may
still say anything. Fields that no shape names are passed on as they are, and nobody may rely on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkbuild.agent.wire import clock, events
from sparkbuild.agent.wire.verbs import Look, Verb
from sparkbuild.core.errors import NodeError

DEEPEST = 40  # tables and lists within each other; a key's parts have 6
_AGAIN = "run again; if it stays, the node's store or its docker holds what sparkbuild did not write"

_EVENTS: dict[str, Any] = {
    "state": events.State,
    "launch": events.Launched,
    "progress": events.Progress,
    "log": events.Log,
}


def fact_of(node: str, scheme: str, found: Any) -> dict[str, Any]:
    """One fact as it came, now that its shape is known. Raises NodeError for one of another shape."""
    shape = _shape(scheme, found)
    _check(found, shape, f"{node} gives an odd answer about {scheme or 'it'}", f"node {node}")
    checked: dict[str, Any] = found
    return checked


def result_of(node: str, verb: str, found: dict[str, Any]) -> dict[str, Any]:
    """The result of a verb, as `fact_of`."""
    if isinstance(verb, Verb):
        is_absent = verb.absent is not None and found.get("present") is not True
        shape = verb.absent if is_absent else verb.result
        _check(found, shape, f"{node} gives an odd answer to {str(verb)!r}", f"node {node}")
    return found


def is_event(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether an event has the fields that its kind must have."""
    try:
        msgspec.convert(fields, _EVENTS.get(kind, dict[str, Any]))
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _shape(scheme: str, found: Any) -> Any:
    if isinstance(found, dict) and isinstance(scheme, Look):
        return scheme.absent if found.get("present", True) is not True else scheme.fact
    return dict[str, Any]


def _check(found: Any, shape: Any, what: str, where: str) -> None:
    try:
        msgspec.convert(found, shape, dec_hook=_bounded)
        problem = "" if _is_flat(found) else f"more than {DEEPEST} tables and lists within each other"
    except msgspec.ValidationError as error:
        problem = str(error)
    except RecursionError:
        problem = "tables and lists without end"
    if problem:
        raise NodeError(what, where=where, found=problem[:500], next=_AGAIN)


def _bounded(shape: type, told: object) -> object:
    """Msgspec's hook for what it does not know: any JSON, and a time, which JSON has as a number."""
    if shape is object:
        return told
    if issubclass(shape, float) and isinstance(told, (int, float)) and 0 <= told <= clock.LATEST:
        return shape(told)
    raise ValueError(f"{str(told)[:40]!r} is no time")


def _is_flat(found: Any) -> bool:
    level = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False
