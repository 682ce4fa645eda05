"""Stopping a lane on all of its nodes, whatever it runs in. Stopping what does not run is not an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from sparkbuild.agent.wire.lanelabels import CREATED
from sparkbuild.agent.wire.lanes import NOTE, STOP, NoteAsk, StopAsk
from sparkbuild.agent.wire.records import Box
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.run import Agent, Event, call
from sparkbuild.nodes.ask import everywhere
from sparkbuild.serving.launch.hold import operator
from sparkbuild.serving.ranks import not_ours

if TYPE_CHECKING:
    import docker


class Reach(Protocol):
    """What is needed of nodes.cluster.Nodes."""

    def agent(self, node: str) -> Agent:
        """The node's agent."""

    def docker(self, node: str) -> docker.DockerClient:
        """The node's docker engine."""


class Stopped(msgspec.Struct, frozen=True):
    """What was stopped on one node, in words; "" when nothing ran. `error`: what may still run there. `nodes`: those
    that what was stopped had been launched on. `foreign`: what runs there of another store and is left alone, in words.
    """

    node: str
    text: str
    error: SparkbuildError | None = None
    nodes: tuple[str, ...] = ()
    foreign: str = ""


def stop_lane(
    reach: Reach,
    recipe: str,
    nodes: tuple[str, ...],
    grace: float,
    *,
    launch: str = "",
    final: bool = False,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[Stopped, ...]:
    """Stop it on all nodes at the same time, in rank order of the result; with `launch`, only what that launch started.
    A node that cannot be reached holds up none of the others; its error is in the result.
    """
    request = StopAsk(recipe=recipe, grace=grace, by=operator())
    if launch:
        request["launch"] = launch

    def work(node: str) -> Stopped:
        try:
            return _stop(reach, node, request, final=final, note=note)
        except SparkbuildError as error:
            return Stopped(node, "", error)

    return tuple(everywhere(nodes, work).values())


def failure(recipe: str, done: tuple[Stopped, ...]) -> SparkbuildError | None:
    """One error for all nodes on which it may still run."""
    errors = [end for end in done if end.error is not None]
    if not errors:
        return None
    if len(done) == 1 and errors[0].error is not None:
        return errors[0].error
    stopped = [end.node for end in done if end.error is None]
    return NodeError(
        f"lane {recipe} may still run on {', '.join(end.node for end in errors)}",
        found="\n".join(f"{end.node}: {end.error}" for end in errors),
        wanted=f"all nodes; it does not run on {', '.join(stopped)}" if stopped else "all nodes",
        next=f"doit stop:{recipe} again, when they can be reached",
    )


def _stop(reach: Reach, node: str, request: StopAsk, *, final: bool, note: Callable[[str], None]) -> Stopped:
    agent, recipe, grace = reach.agent(node), request["recipe"], request["grace"]

    def on_event(event: Event) -> None:
        if event.get("event") == "log":
            note(str(event.get("text", "")))

    done = call(agent, STOP, request, on_event, final=final)
    texts = []
    if done["stopped"]:
        texts.append(f"stopped process {done['pid']} on {node}{_killed(grace) if done['killed'] else ''}")
    if done.get("docker_problem"):
        raise NodeError(f"docker on {node} does not answer", found=done["docker_problem"], next=f"doit stop:{recipe}")
    failed: SparkbuildError | None = None
    for box in done.get("containers") or ():
        try:
            texts.append(_stop_box(reach, recipe, node, box, grace))
        except SparkbuildError as error:  # the others are stopped nevertheless
            failed = failed or error
    if failed is not None:
        raise failed
    if done.get("containers"):
        ended = NoteAsk(recipe=recipe, launch=request.get("launch") or done["launch"], set={"stopped_at": time.time()})
        with suppress(SparkbuildError):  # a container without a record: there is nothing to note it in
            call(agent, NOTE, ended, final=final)
        call(agent, STOP, StopAsk(**{**request, "grace": 0}), final=final)  # its secrets go when nothing of it is left
    nodes = tuple(done.get("nodes") or ()) if texts else ()
    others = not_ours(node, done.get("foreign"), done.get("elsewhere"))
    return Stopped(node, "; ".join(texts), None, nodes, "; ".join(others))


def _stop_box(reach: Reach, recipe: str, node: str, box: Box, grace: float) -> str:
    from sparkbuild.serving.launch import dockerruntime  # noqa: PLC0415 - loads docker-py, 170 ms; most lanes are stopped without it

    with dockerruntime.told(node, f"stopping lane {recipe}"):
        killed = dockerruntime.stop(reach.docker(node).api, box["id"], grace)
    if box["state"] == CREATED:
        return f"removed container {box['id'][:12]} on {node}, which was never started"
    return f"stopped container {box['id'][:12]} on {node}{_killed(grace) if killed else ''}"


def _killed(grace: float) -> str:
    return f"; it had to be killed after {grace:.0f} s"
