"""What a cluster costs: a null serve on many nodes, and the facts of many nodes beside those of one. Needs root.

    .venv/bin/python benchmarks/cluster.py [--nodes 8] [--rounds N] [--smallest]

Brings up a rack (tests/rack: real sshd and dockerd in namespaces of this machine), serves demo on this machine and
demo-2x, made for all of its nodes, there. Then times in turn, the best round of each:

  ssh     `ssh node true` on all nodes at once, OpenSSH's client with the rack's key
  plan    `doit plan serve:demo`, nothing stale, on this machine, where it has a port of its own
  serve   `doit serve:wide`, nothing stale, on all nodes
  health  `doit health:one` and `doit health:all`: all facts of one node, and of all nodes
  facts   the same within one process: with the connections made for it, and again over these
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from needs import CACHE, options  # noqa: E402 - as above
from second_serve import on_a_free_port  # noqa: E402 - as above

from sparkbuild.nodes.ask import survey  # noqa: E402 - as above
from sparkbuild.nodes.cluster import Nodes, Place  # noqa: E402 - the repository is on the path now
from tests.rack.lanes import make_store  # noqa: E402 - as above
from tests.rack.rack import Rack  # noqa: E402 - as above

DODO = "from sparkbuild.plugin.tasks import *\nfrom sparkbuild.plugin.tasks import config\nDOIT_CONFIG = config()\n"
STORE = "/srv/sparkbuild"
QUERY = {"scheme": "node", "paths": ["/srv"], "images": []}


def write(root: Path, rack: Rack) -> None:
    """A workspace with the demo for this machine, and the two-node demo as `wide` for all nodes of the rack."""
    for name in ("images", "locks", "recipes/demo"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "reports"))
    shutil.copytree(ROOT / "recipes/demo-2x", root / "recipes/wide")
    recipe = root / "recipes/wide/recipe.toml"
    recipe.write_text(recipe.read_text().replace('cluster = "pair"', 'cluster = "all"'))
    on_a_free_port(root / "recipes/demo/recipe.toml")
    (root / "dodo.py").write_text(DODO)
    # what demo-2x is made of is made once for all tests and benchmarks
    text = f"[nodes.local]\nstore = {json.dumps(str(make_store(CACHE)))}\n"
    for node in rack.nodes:
        text += (
            f'\n[nodes.{node.name}]\nconnection = "ssh"\naddress = "{node.address}"\nuser = "{node.user}"\n'
            f'key = "{node.key_file}"\nhost_key = "{node.host_key}"\nstore = "{STORE}"\noffline = true\n'
        )
    names = json.dumps([node.name for node in rack.nodes])
    clusters = {"local": '["local"]', "one": json.dumps([rack.nodes[0].name]), "all": names}
    text += "".join(f"\n[clusters.{name}]\nnodes = {members}\n" for name, members in clusters.items())
    (root / "config.toml").write_text(text)


def doit(root: Path, *args: str) -> str:
    """Run doit; ends this program when it fails."""
    argv = [sys.executable, "-m", "doit", *args]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"doit {' '.join(args)} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def ssh_everywhere(rack: Rack) -> None:
    """`true` on every node at once."""
    started = [
        subprocess.Popen([*node.ssh_command(), "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for node in rack.nodes
    ]
    if any(process.wait() for process in started):
        sys.exit("ssh failed")


def facts(rack: Rack, count: int) -> tuple[float, float]:
    """Seconds for the wide facts of `count` nodes: with the connections made for it, and again over these."""
    places = {
        node.name: Place("ssh", STORE, node.address, node.user, key=str(node.key_file), host_key=node.host_key)
        for node in rack.nodes[:count]
    }
    nodes = Nodes(Path("/"), places)
    times = []
    try:
        for _ in range(2):
            start = time.perf_counter()
            found = survey(nodes.agent, dict.fromkeys(places, QUERY))
            times.append(time.perf_counter() - start)
            if any("kernel" not in fact for fact in found.values()):
                sys.exit(f"no facts: {found}")
    finally:
        nodes.close()
    return times[0], times[1]


def in_turn(rounds: int, works: Sequence[Callable[[], Any]]) -> list[float]:
    """The least seconds of each, all of them done in turn in every round."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def main() -> None:
    """Serve, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    given = options(parser, {"nodes": 2, "rounds": 1}, rack=True)
    with Rack.up(given.nodes) as rack, tempfile.TemporaryDirectory(prefix="sparkbuild-bench.") as folder:
        root = Path(folder) / "workspace"
        root.mkdir()
        write(root, rack)
        try:
            doit(root, "serve:demo", "serve:wide")
            table(root, rack, given.rounds)
        finally:
            doit(root, "-c", "stop:demo", "stop:wide")


def table(root: Path, rack: Rack, rounds: int) -> None:
    """Measure and print."""
    out = ""

    def serve() -> None:
        nonlocal out
        out = doit(root, "serve:wide")

    ssh, plan, wide = in_turn(rounds, [lambda: ssh_everywhere(rack), lambda: doit(root, "plan", "serve:demo"), serve])
    count = len(rack.nodes)
    made = len(re.findall(r"^run ", out, re.MULTILINE))
    print(f"best of {rounds}, {count} nodes, {os.cpu_count()} cores for all of them and this program")
    print(f"ssh true on {count} at once {ssh * 1e3:.0f} ms, null plan of one machine {plan * 1e3:.0f} ms,")
    print(
        f"null serve on {count} nodes {wide * 1e3:.0f} ms, {made} actions: ratio {wide / (ssh + plan):.2f} to their sum"
    )
    one, every = in_turn(rounds, [lambda: doit(root, "health:one"), lambda: doit(root, "health:all")])
    print(f"doit health of one node {one * 1e3:.0f} ms, of {count} nodes {every * 1e3:.0f} ms: ratio {every / one:.2f}")
    ones, alls = [facts(rack, 1) for _ in range(rounds)], [facts(rack, count) for _ in range(rounds)]
    for index, how in enumerate(("with the connection made", "over the open connection")):
        one, every = min(pair[index] for pair in ones), min(pair[index] for pair in alls)
        print(f"facts {how}: one node {one * 1e3:.0f} ms, {count} nodes {every * 1e3:.0f} ms: ratio {every / one:.2f}")


if __name__ == "__main__":
    main()
