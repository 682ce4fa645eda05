"""Questions about the nodes themselves, asked of all of them at the same time, beside what goals want to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sparkbuild.agent.wire.nodes import FACTS
from sparkbuild.agent.wire.verbs import Absent, Look
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Agent, Ask, Told
from sparkbuild.nodes.rpc.shapes import fact_of
from sparkbuild.nodes.unreached import Unreached

T = TypeVar("T")
Fact = dict[str, Any]


def answers(agent: Agent, node: str, queries: Sequence[Mapping[str, Any]]) -> list[Fact | NodeError]:
    """What a node answers to its questions, in their order; an error in place of an answer of another shape than that
    question has, and of what is on a disk that does not answer there. Raises SparkbuildError when the node cannot be
    asked.
    """
    plain = [{**query, "scheme": str(query.get("scheme", ""))} for query in queries]  # msgspec takes no kind of str
    facts = agent.call(FACTS, {"queries": plain}).get("facts") or []
    if len(facts) != len(queries):
        raise NodeError(f"the agent on {node} answered {len(facts)} questions of {len(queries)}")
    found: list[Fact | NodeError] = []
    for query, fact in zip(queries, facts, strict=True):
        try:
            checked = fact_of(node, query.get("scheme", ""), fact)
            found.append(_hung(node, checked["hung"]) if checked.get("hung") else checked)
        except NodeError as error:
            found.append(error)
    return found


def _hung(node: str, fields: Mapping[str, str]) -> NodeError:
    where = f"node {node}, {fields.get('where', '')}"
    more = {name: fields.get(name, "") for name in ("found", "wanted", "next")}
    return NodeError(fields.get("what", ""), where=where, **more)


def answer(agent: Agent, node: str, query: Mapping[str, Any]) -> Fact:
    """What a node answers to one question; raises SparkbuildError when it does not, or in another shape."""
    (found,) = answers(agent, node, [query])
    if isinstance(found, NodeError):
        raise found
    return found


def look(agent: Agent, node: str, what: Look[Ask, Told], query: Ask) -> Told:
    """`answer` with the shapes of what is looked at. The query is made by its constructor: `ListenerAsk(port=80)`.
    Where the look has no fact for what is absent, a node that could not look raises as well.
    """
    fact = answer(agent, node, {"scheme": what, **cast("Mapping[str, Any]", query)})
    if what.absent is Absent and fact.get("present", True) is not True:
        raise NodeError(str(fact.get("problem") or "no answer"))
    return cast("Told", fact)


def look_everywhere(
    agent: Callable[[str], Agent], what: Look[Ask, Told], queries: Mapping[str, Ask]
) -> dict[str, Told | Unreached]:
    """`survey` with the shapes of what is looked at."""
    asked = {node: {"scheme": what, **cast("Mapping[str, Any]", query)} for node, query in queries.items()}
    return cast("dict[str, Told | Unreached]", survey(agent, asked))


def survey(agent: Callable[[str], Agent], queries: Mapping[str, Mapping[str, Any]]) -> dict[str, Fact]:
    """What each node answers to its query, in the order of `queries`; {"unreachable": message} of a silent one, and of
    one whose answer has another shape.
    """

    def ask(node: str) -> Fact:
        try:
            return answer(agent(node), node, queries[node])
        except SparkbuildError as error:
            return {"unreachable": str(error)}

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
