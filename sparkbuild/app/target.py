"""Where and with what a bench runs: the lane's address and the harness image, as they are when it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkbuild.bench.target import BenchTarget
from sparkbuild.core.errors import NotReadyError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.images.venv import folder_in_store
from sparkbuild.serving.ranks import LaneSeen, ranks_of

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes


@contextmanager
def bench_target(goal: Goal, look: Callable[[Goal], Verdict], nodes: Nodes) -> Iterator[BenchTarget]:
    """The target of a report goal, reached while the block runs. `look` looks at a goal now. Raises NotReadyError when
    the lane does not run.
    """
    lane, harness = goal.needs
    head = ranks_of(lane, look(lane).fact or LaneSeen())[0]
    record = head.record
    if not head.alive or record is None:
        raise NotReadyError(f"lane {goal.spec.recipe} does not run", next=f"doit serve:{goal.spec.recipe}")
    image = os.path.join(nodes.store(harness.node), folder_in_store(harness))
    base = nodes.store(lane.nodes[0])
    is_here = nodes.place(lane.nodes[0]).connection == "local"
    with nodes.door(lane.nodes[0], record["host"], record["port"]) as url:
        yield BenchTarget(
            base_url=url,
            model_id=record["model_id"],
            python=os.path.join(image, "bin", "python"),
            files=os.path.join(image, "files"),
            staged={block: os.path.normpath(os.path.join(base, path)) for block, path in lane.spec.staged.items()},
            node="" if is_here else lane.nodes[0],
        )
