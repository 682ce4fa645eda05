"""Which lanes can be stopped, and where: also those whose recipe is broken, renamed, removed or moved."""

from __future__ import annotations

from typing import NamedTuple

from sparkbuild.app.catalog import Catalog
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.serving import places

GRACE = 15.0  # seconds a lane gets to stop when its recipe cannot say so


class Stop(NamedTuple):
    """The nodes a lane may run on, in rank order, and the seconds it gets to end by itself."""

    nodes: tuple[str, ...]
    grace: float


def lane_stops(catalog: Catalog, nodes: Nodes) -> dict[str, Stop]:
    """By recipe. Where a broken recipe was to run cannot be read: it is where this workspace noted that it launched it,
    and where it noted nothing every node is looked at. Files of this machine are read, and no node is asked.
    """
    everywhere, all_noted = tuple(catalog.workspace.config.nodes), places.noted(str(catalog.root))
    stops = {name: Stop(lane.nodes, lane.spec.stop_grace) for name, lane in catalog.goals.lanes.items()}
    for problem in catalog.goals.problems:
        folder, _, name = problem.partition("/")
        if folder == "recipes" and name not in stops:
            noted = tuple(node for node in all_noted.get(name, ()) if node in everywhere)
            stops[name] = Stop(noted or everywhere, GRACE)
    for name, node in nodes.orphans(stops).items():
        stops[name] = Stop((node,), GRACE)
    for name, noted in all_noted.items():
        known, grace = stops.get(name, Stop((), GRACE))
        more = tuple(node for node in noted if node not in known and node in everywhere)
        if known or more:
            stops[name] = Stop((*known, *more), grace)
    return stops
