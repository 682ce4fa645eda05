"""A workspace that is open for one run: what was read, what was seen, what is planned, what this run does."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.app.catalog import Catalog
from sparkbuild.app.names import Stop
from sparkbuild.app.stops import lane_stops
from sparkbuild.app.work import STATE_FILE, Work
from sparkbuild.core.pools import Pools
from sparkbuild.core.state import StateStore
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.local.early import Early

if TYPE_CHECKING:
    from sparkbuild.app.observed import Observed
    from sparkbuild.app.planned import Planned

_POOLS = {"build": 1, "fetch": 2, "nas": 16, "bench": 1}


class Opened:
    """The four, made for each other. Making one reads the workspace and looks at no node; raises ConfigError when there
    is none to read.
    """

    def __init__(self, root: Path, early: Early | None = None) -> None:
        self.root = root
        self.catalog = Catalog(root)
        config = self.catalog.names.config
        places = {name: Place(**msgspec.structs.asdict(node)) for name, node in config.nodes.items()}
        fabrics = dict.fromkeys(cluster.fabric for cluster in config.clusters.values() if cluster.fabric)
        self.nodes = Nodes(root, places, early, tuple(fabrics))
        pools = Pools({**_POOLS, **dict.fromkeys(config.nodes, 1), **config.pools})
        self.work = Work(root, self.nodes, pools, StateStore(root / STATE_FILE))

    @cached_property
    def planned(self) -> Planned:
        """What is planned."""
        from sparkbuild.app import observed, planned  # noqa: PLC0415 - 28 ms, and `doit list` looks at no node

        return planned.Planned(observed.Observed(self.catalog, self.nodes, self.work.pools, self.work.state))

    @property
    def observed(self) -> Observed:
        """What was seen."""
        return self.planned.observed

    def stops(self) -> dict[str, Stop]:
        """The lanes that can be stopped, by recipe."""
        return lane_stops(self.root, self.catalog.names, self.nodes)

    def close(self) -> None:
        """End the connections, fold the state file."""
        self.nodes.close()
        self.work.state.close()
