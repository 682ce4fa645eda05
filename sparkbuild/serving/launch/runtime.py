"""What is to be launched as one rank, and the runtime that starts a program on the node."""

from __future__ import annotations

from typing import cast

import msgspec

from sparkbuild.agent.wire.lanes import LAUNCH, LaunchAsk, Launching
from sparkbuild.agent.wire.records import LaneParts, LaneRecord
from sparkbuild.core.goal import Goal
from sparkbuild.core.run import Run
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.render import Launch, Rank


class Order(msgspec.Struct, frozen=True):
    """A launch of one rank. `number` is the same on all ranks of one launch; `secrets` is the folder on the node that
    holds them as files, "" when there is none; `by` says who launches it.
    """

    goal: Goal
    rank: Rank
    launch: Launch
    number: str
    secrets: str = ""
    by: str = ""


def request_of(order: Order) -> Launching:
    """What is asked of the node. Only rank 0 serves; the others have no port of their own."""
    spec: LaneSpec = order.goal.spec
    return {
        "recipe": spec.recipe,
        "launch": order.number,
        "rank": order.rank.rank,
        "world_size": order.rank.world_size,
        "key": order.goal.key.digest,
        "parts": cast("LaneParts", order.goal.key.parts),  # `lane_goal` makes them, `nodes` among them
        "argv": list(order.launch.argv),
        "uses": list(order.launch.uses),
        "host": order.rank.host,
        "port": spec.port if order.rank.rank == 0 else 0,
        "model_id": spec.model_id,
        "protect": spec.protect,
        "lock": spec.lock,
    }


def start_process(order: Order, run: Run) -> LaneRecord:
    """A program on the node, started by the node's agent and detached from it; its record."""
    return run.call(order.rank.node, LAUNCH, LaunchAsk(**request_of(order), env=order.launch.env))["record"]
