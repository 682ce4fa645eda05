"""Which lanes can be stopped, and where: also those whose recipe is broken, renamed, removed or moved."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.app.names import Names, Stop
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.serving import places

GRACE = 15.0  # seconds a lane gets to stop when its recipe cannot say so


def lane_stops(root: Path, names: Names, nodes: Nodes) -> dict[str, Stop]:
    """By recipe. Where a broken recipe was to run cannot be read: it is where this workspace noted that it launched it,
    and where it noted nothing every node is looked at. Files of this machine are read, and no node is asked.
    """
    everywhere, all_noted = tuple(names.config.nodes), places.noted(str(root))
    stops = dict(names.lanes)
    for problem in names.problems:
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
