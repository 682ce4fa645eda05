"""Questions about the nodes themselves, asked of all of them at the same time, beside what goals want to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Agent

T = TypeVar("T")
Fact = dict[str, Any]


def survey(agent: Callable[[str], Agent], queries: Mapping[str, Mapping[str, Any]]) -> dict[str, Fact]:
    """What each node answers to its query, in the order of `queries`; {"unreachable": message} of a silent one."""

    def ask(node: str) -> Fact:
        try:
            facts: list[Fact] = agent(node).call("facts", {"queries": [queries[node]]}).get("facts") or []
        except SparkbuildError as error:
            return {"unreachable": str(error)}
        return facts[0] if len(facts) == 1 else {"unreachable": f"the agent on {node} answered no question"}

    return everywhere(tuple(queries), ask)


def everywhere(nodes: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
    """Do something on all nodes at the same time. All are waited for; then the first error, in their order, is raised.

    The threads are daemons: a node that hangs may hold up a run, but not its end.
    """
    if len(nodes) == 1:
        return {nodes[0]: work(nodes[0])}
    results: dict[str, T] = {}
    failures: dict[str, BaseException] = {}

    def run(node: str) -> None:
        try:
            results[node] = work(node)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failures[node] = error

    threads = [threading.Thread(target=run, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in nodes:
        if node in failures:
            cancel.check()  # told to stop: that is the reason, whatever the threads say
            raise failures[node]
    return {node: results[node] for node in nodes}
