"""What is said of a node that nobody can see: rows and sums agree, and nothing is claimed of its lane."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.test_parts import LOCK, STAGED
from tests.workspace.helpers import digest, put
from tests.workspace_tool import DODO, Tool


@pytest.fixture
def doit(tmp_path: Path) -> Iterator[Tool]:
    """A workspace whose one recipe is for a node that refuses."""
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        way = f'address = "127.0.0.1"\nport = {taken.getsockname()[1]}\nstore = "/srv/x"\n'
        node = f'[nodes.dgx2]\nconnection = "ssh"\n{way}'
        put(tmp_path, "config.toml", f'{node}[clusters.away]\nnodes = ["dgx2"]\n')
        put(tmp_path, "dodo.py", DODO)
        put(tmp_path, "locks/pins.source.lock", f"{LOCK}input.images/env/r.lock.sha256={digest('')}\n")
        put(tmp_path, "data.gguf", "data")
        put(tmp_path, "images/env/image.toml", 'kind = "venv"\nlock = "pins"\nrequirements = "r.lock"\n')
        put(tmp_path, "images/env/r.lock", "")
        serve = '[serve]\nruntime = "process"\ncommand = ["x"]\nport = 8000\n'
        put(tmp_path, "recipes/far/recipe.toml", f'cluster = "away"\nimage = "env"\nmodel_id = "m"\n{serve}{STAGED}')
        yield Tool(tmp_path)


def test_the_plan_counts_what_it_shows(doit: Tool) -> None:
    shown = doit.ok("plan", "serve:far").out
    rows = [line for line in shown.splitlines() if re.match(r"(unknown|run|maybe|ok) +\S+ +\S+:", line)]
    (total,) = re.findall(r"(\d+) unknown", shown)
    assert int(total) == len([line for line in rows if line.startswith("unknown")]), shown


def test_nothing_is_said_of_what_its_lane_was_launched_from(doit: Tool) -> None:
    (row,) = json.loads(doit.ok("status", "--json").out)["lanes"]
    assert row["state"].startswith("unknown")
    assert row["current"] is None
