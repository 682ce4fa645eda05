"""What it costs that N nodes mirror one repository of a slow NAS, beside one node that does. Needs root.

    .venv/bin/python benchmarks/staging_chain.py [--nodes 4] [--mb-per-s 60] [--mib 384] [--rounds 2] [--smallest]

Brings up a rack (tests/rack: real sshd in namespaces of this machine, and a NAS of limited bandwidth, shared by all
nodes), then runs `doit stage:one` and `doit stage:all` in turn, from nothing staged, and counts what the NAS gave. The
limit is to be well below what this machine can copy and hash: all nodes share its cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from cluster import DODO, STORE, doit
from needs import options
from staging import head, show
from staging_tools import MIB, ROOT, Row

sys.path.insert(0, str(ROOT))

from tests.rack.nas import Nas
from tests.rack.rack import Rack
from tests.staging.hubcache import REPO, HubCache

AT = "/mnt/nas"
RECIPE = """
cluster = "{name}"
image = "demo-ranks"
model_id = "m"

[serve]
command = ["sleep", "1"]
port = 8500
runtime = "docker"

[[staging]]
id = "model"
kind = "hub-mirror"
src = "{at}"
repos = ["{repo}"]
"""


def write(root: Path, rack: Rack) -> None:
    """A workspace with one recipe for one node and one for all."""
    for name in ("images", "locks"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "dodo.py").write_text(DODO)
    text = f'[nodes.local]\nconnection = "local"\nstore = {json.dumps(str(root / "store"))}\n'
    for node in rack.nodes:
        text += (
            f'\n[nodes.{node.name}]\nconnection = "ssh"\naddress = "{node.address}"\nuser = "{node.user}"\n'
            f'key = "{node.key_file}"\nhost_key = "{node.host_key}"\nstore = "{STORE}"\noffline = true\n'
        )
    clusters = {"one": rack.nodes[:1], "all": rack.nodes}
    for name, nodes in clusters.items():
        text += f"\n[clusters.{name}]\nnodes = {json.dumps([node.name for node in nodes])}\n"
        place = root / "recipes" / name / "recipe.toml"
        place.parent.mkdir(parents=True)
        place.write_text(RECIPE.format(name=name, at=AT, repo=REPO))
    (root / "config.toml").write_text(text)


def hub(folder: Path, mib: int) -> int:
    """A hub cache with one repository of four shards; its unique bytes."""
    cache = HubCache(folder)
    for index in range(4):
        cache.add(f"model-{index + 1:05}-of-00004.safetensors", os.urandom(mib * MIB // 4))
    cache.add("config.json", b'{"model_type": "demo"}', lfs=False)
    cache.ref()
    return sum(map(len, cache.files.values()))


def staged(root: Path, rack: Rack, nas: Nas, name: str) -> tuple[float, int]:
    """(seconds, bytes that the NAS gave) of `doit stage:<name>`, from nothing."""
    for node in rack.nodes:
        node.run(["rm", "-rf", f"{STORE}/staged"], check=True)
    os.sync()
    nas.forget()
    start = time.perf_counter()
    doit(root, f"stage:{name}")
    return time.perf_counter() - start, nas.bytes_read()


def main() -> None:
    """Stage, time, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mb-per-s", type=float, default=60)
    parser.add_argument("--mib", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=2)
    given = options(parser, {"nodes": 2, "mib": 8, "rounds": 1}, rack=True, nas=True)
    count = given.nodes
    with (
        Rack.up(count, docker=False) as rack,
        tempfile.TemporaryDirectory(prefix="sparkbuild-bench.") as folder,
    ):
        root, source = Path(folder) / "workspace", Path(folder) / "hub"
        root.mkdir()
        source.mkdir()
        write(root, rack)
        unique = hub(source, given.mib)
        nas = rack.nas(source, direct_io=True, mb_per_s=given.mb_per_s, latency_ms=1)
        for node in rack.nodes:
            nas.mount(node, AT)
        ones, alls = [], []
        for _ in range(given.rounds):
            ones.append(staged(root, rack, nas, "one"))
            alls.append(staged(root, rack, nas, "all"))
    (one, _), (every, _) = min(ones), min(alls)
    read_share = max(read for _, read in alls) / unique
    head()
    what = f"{count} nodes mirror one repository of {given.mib} MiB"
    nas_row = Row(
        f"{what}: NAS bytes", f"{read_share:.4f} of the unique bytes", "", f"{read_share:.2f}", "1.0", read_share < 1.01
    )
    beside, ratio = f"one node: {one:.1f} s", every / one
    show([nas_row, Row(f"{what}: time", f"{every:.1f} s", beside, f"{ratio:.2f}", "<= 1.3", ratio <= 1.3)])
    print(f"NAS of {given.mb_per_s:g} MB/s, best of {given.rounds}, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
