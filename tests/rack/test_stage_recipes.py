"""The shipped recipes' staging on real nodes with one slow NAS, from checkpoints of the real shape.

Their images and engines cannot run here: what is made is what `doit stage` makes.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agent.driver import CHUNK, flip
from tests.engine import ROOT
from tests.rack.lanes import STORE, Lanes
from tests.rack.nas import Nas
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.staging.checkpoint import LAYERS, Checkpoint, make
from tests.staging.hubcache import REAL, TWO_HOP, HubCache
from tests.staging.readers import Packed, tile
from tests.workspace_tool import bare, finish, until

pytestmark = pytest.mark.usefixtures("nas_python")
AT = "/srv/models"  # where both recipes have their NAS
MIA, EXL3 = "dsv41-mia", "dsv41-exl3-2x"
REPO, COMMIT = "deepseek-ai/DeepSeek-V4.1-Flash", "fb2764a5cf321eaa5070ca8f9e892818f477c16d"
MODEL, DRAFT = "coolbho3k/DeepSeek-V4.1-Flash-EXL3-3bpw", "coolbho3k/DeepSeek-V4.1-Flash-DSpark-EXL3-3bpw"
ENGRAM = f"{STORE}/staged/{MIA}/engram"
WEIGHTS = f"{STORE}/staged/{EXL3}/weights"
MIB = 1 << 20
RANKS = range(4)


@pytest.fixture(scope="module")
def four(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(4, docker=False) as rack:
        yield rack


class Site:
    """A workspace with one shipped recipe, for the nodes of a rack that have the NAS."""

    def __init__(self, root: Path, rack: Rack, recipe: str, nas: Nas, nodes: Sequence[Node]) -> None:
        bare(root)
        for folder in (f"recipes/{recipe}", "images/mia-tp4", "locks"):
            shutil.copytree(ROOT / folder, root / folder)
        (root / "home/.ssh").mkdir(parents=True)
        self.lanes = Lanes(root, rack, root / "store", {"HOME": str(root / "home")})
        names = json.dumps([node.name for node in nodes])
        cluster = re.search(r'^cluster = "(\w+)"', self.lanes.path(recipe).read_text(), re.MULTILINE)
        assert cluster
        text = self.lanes.path(recipe).read_text()
        self.lanes.path(recipe).write_text(re.sub(r"^min_free = .*$", "min_free = 0", text, flags=re.MULTILINE))
        self.lanes.config(clusters=f"[clusters.{cluster[1]}]\nnodes = {names}\n")
        self.recipe, self.nas, self.nodes = recipe, nas, list(nodes)

    def task(self, node: Node, block: str) -> str:
        return f"stage:{self.recipe}:{node.name}:{block}"

    def stage(self, *more: str) -> list[str]:
        """Run it; the tasks that it made."""
        before = len(self.lanes.runs())
        self.lanes.ok(":".join(("stage", self.recipe, *more)))
        return sorted(entry["task"] for entry in self.lanes.runs()[before:] if entry["event"] == "start")

    def plan(self, *names: str) -> dict[str, dict[str, Any]]:
        return self.lanes.plan(*(names or (f"stage:{self.recipe}",)))

    def nothing_to_do(self) -> None:
        """It makes nothing again, and does not read the NAS to know."""
        self.nas.forget()
        assert self.stage() == []
        assert self.nas.bytes_read() == 0


@pytest.fixture
def site(four: Rack, tmp_path: Path) -> Iterator[Any]:
    """Makes sites; afterwards the nodes have neither NAS nor what was staged."""
    mounted: list[tuple[Nas, Node]] = []

    def made(recipe: str, source: Path, count: int, **how: float) -> Site:
        nas = four.nas(source, direct_io=True, **how)
        for node in four.nodes[:count]:
            nas.mount(node, AT)
            mounted.append((nas, node))
        return Site(tmp_path / "ws", four, recipe, nas, four.nodes[:count])

    yield made
    for nas, node in mounted:
        node.boot()
        node.run(["rm", "-rf", STORE], check=True)
        if nas.is_mounted(node, AT):
            nas.unmount(node, AT)


# -- four ranks of packed rows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """48 shards, the tables in the last two of them, as the real one; a rank's files have two chunks each."""
    top = tmp_path_factory.mktemp("mia")
    return make(top / "hub", vocab=4000, shards=48, as_hub_cache=True, repo=REPO, commit=COMMIT)


def bounds(rows: int, rank: int) -> tuple[int, int]:
    """The rows of a rank where all have as many."""
    return rows * rank // 4, rows * (rank + 1) // 4


def packed(node: Node, rank: int, layer: int) -> Path:
    return node.path(f"{ENGRAM}/engram-l{layer}-r{rank}of4.bin")


def every_row_is_right(site: Site, made: Checkpoint) -> None:
    for layer in LAYERS:
        table, seen = made.tables[layer], []
        for rank, node in enumerate(site.nodes):
            reader = Packed(packed(node, rank, layer), layer, *bounds(table.rows, rank), table.rows)
            seen.append((reader.lo, reader.hi))
            assert all(row == table.row(number) for number, row in enumerate(reader.rows(), reader.lo))
            reader.close()
        assert tile(seen, table.rows)


def data_of(made: Checkpoint, rank: int) -> int:
    """Bytes of a rank's rows."""
    return sum(264 * (high - low) for low, high in (bounds(table.rows, rank) for table in made.tables.values()))


def test_mia_on_four_nodes(site: Any, checkpoint: Checkpoint) -> None:
    here = site(MIA, checkpoint.cache.parent, 4, mb_per_s=200, latency_ms=0.5)
    tasks = [here.task(node, "engram") for node in here.nodes]
    plan = here.plan()
    assert sorted(plan) == tasks
    for rank, task in enumerate(tasks):
        assert (plan[task]["state"], plan[task]["bytes"]) == ("run", data_of(checkpoint, rank) + 2 * 4096)
        assert "not staged yet" in plan[task]["reasons"][0]["text"]
    assert here.nas.bytes_read() < 1 * MIB, "a plan reads headers"

    assert here.stage(here.nodes[2].name) == [tasks[2]], "a node for itself"
    here.nas.forget()
    assert here.stage() == [*tasks[:2], tasks[3]]
    every_row_is_right(here, checkpoint)
    for rank, node in enumerate(here.nodes):
        read = here.nas.bytes_read(node=node.name)
        assert read < 1.2 * data_of(checkpoint, rank), "its own rows, and nothing of others"
        assert sorted(path.name for path in node.path(ENGRAM).iterdir()) == [
            ".sparkbuild",
            f"engram-l1-r{rank}of4.bin",
            f"engram-l14-r{rank}of4.bin",
        ]
    here.nothing_to_do()
    why = here.lanes.ok("why", tasks[1]).out
    assert why.startswith(f"ok      {tasks[1]}")

    # a node without one of its files, and one with a byte that is another: nothing else runs, nothing else is read
    lost, spoilt = packed(here.nodes[1], 1, 14), packed(here.nodes[3], 3, 1)
    size = lost.stat().st_size
    lost.unlink()
    flip(spoilt, 12345)
    plan = here.plan()
    assert [plan[task]["state"] for task in tasks] == ["ok", "run", "ok", "run"]
    assert plan[tasks[1]]["bytes"] == size
    assert [one["text"] for one in plan[tasks[1]]["reasons"]] == [f"{lost.name} is missing"]
    assert plan[tasks[3]]["bytes"] == CHUNK
    assert "differs from its ledger in chunk 1 of 2" in plan[tasks[3]]["reasons"][0]["text"]
    assert "differs from its ledger in chunk 1 of 2" in here.lanes.ok("why", tasks[3]).out
    here.nas.forget()
    assert here.stage() == [tasks[1], tasks[3]]
    assert here.nas.bytes_read(node=here.nodes[0].name) == here.nas.bytes_read(node=here.nodes[2].name) == 0
    assert size * 0.9 < here.nas.bytes_read(node=here.nodes[1].name) < 1.2 * size
    # rows are read in whole windows of 2 MiB, so a chunk costs one of them more
    assert CHUNK * 0.9 < here.nas.bytes_read(node=here.nodes[3].name) < CHUNK + 2.5 * MIB < 0.6 * data_of(checkpoint, 3)
    every_row_is_right(here, checkpoint)
    assert "nothing to do" in here.lanes.ok("plan", f"stage:{MIA}").out


@pytest.mark.long
def test_mia_when_one_node_loses_its_power(site: Any, checkpoint: Checkpoint) -> None:
    """The others finish; when it is back, it goes on where it was."""
    here = site(MIA, checkpoint.cache.parent, 4, mb_per_s=20, latency_ms=0.5)
    victim = here.nodes[1]
    here.lanes.give_up_soon()
    process = here.lanes.start(f"stage:{MIA}")
    try:
        until(lambda: here.nas.bytes_read(node=victim.name) > 0.75 * data_of(checkpoint, 1), 60)
        here.nas.slow(mb_per_s=1)
        victim.kill()
        here.nas.slow(mb_per_s=200)
    finally:
        done = finish(process, 60)
    assert done.code != 0
    assert "Traceback" not in done.text
    assert victim.name in done.text
    states = {task.split(":")[2]: one["state"] for task, one in here.plan().items()}
    assert states == {node.name: "unknown" if node is victim else "ok" for node in here.nodes}, done

    victim.boot()
    here.nas.mount(victim, AT)
    here.nas.forget()
    assert here.stage() == [here.task(victim, "engram")]
    assert 0 < here.nas.bytes_read() < 0.8 * data_of(checkpoint, 1), "what it had is not read again"
    every_row_is_right(here, checkpoint)


# -- a mirror of two repositories, with exports ---------------------------------------------------------------------


SHARDS = [f"model-{number:05}-of-00051.safetensors" for number in range(1, 52)]
PAGES = [
    "engram-page15-v1/manifest.json",
    *(
        f"engram-page15-v1/engram-layer-{layer:02}-rank{rank}-page15.bin.part{part}"
        for layer in LAYERS
        for rank in (0, 1)
        for part in range(3)
    ),
]


class Caches(NamedTuple):
    model: HubCache
    draft: HubCache


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Caches:
    """51 shards by two hops through the shared store, page15 as real files in the snapshot, small files of git."""
    root = tmp_path_factory.mktemp("exl3") / "hub"
    model, draft = HubCache(root, MODEL, COMMIT), HubCache(root, DRAFT, COMMIT)
    for number, name in enumerate(SHARDS):  # a few are worth taking from another node
        size = 2 * MIB if number % 10 == 0 else 20_000
        model.add(name, random.Random(number).randbytes(size + number % 3), TWO_HOP)
    model.add("draft/model.safetensors", random.Random(60).randbytes(2 * MIB), TWO_HOP)
    for name in ("engrams/config.json", "config.json", "tokenizer.json"):
        model.add(name, f'{{"of": "{name}"}}'.encode(), lfs=False)
    index = {"metadata": {}, "weight_map": {f"layers.{number}.w": name for number, name in enumerate(SHARDS)}}
    model.add("model.safetensors.index.json", json.dumps(index).encode(), lfs=False)
    for number, name in enumerate(PAGES):
        model.add(name, random.Random(100 + number).randbytes(100_000), REAL)
    for number in range(3):
        draft.add(f"draft-{number}.safetensors", random.Random(70 + number).randbytes(2 * MIB), TWO_HOP)
    draft.add("config.json", b"{}", lfs=False)
    for cache in (model, draft):
        cache.ref()
    model.leftovers()
    return Caches(model, draft)


def exported(node: Node, export: str) -> Path:
    return node.path(f"{STORE}/exported/{EXL3}/weights/{export}")


def test_exl3_on_two_nodes(site: Any, caches: Caches) -> None:
    here = site(EXL3, caches.model.root.parent, 2, mb_per_s=200, latency_ms=0.2)
    wanted = {path: data for path, data in caches.model.files.items() if path not in PAGES}
    total = sum(map(len, (*wanted.values(), *caches.draft.files.values())))
    plan = here.plan()
    assert len(plan) == 8
    mirrors = {task: one for task, one in plan.items() if "EXL3" in task}
    assert sum(one["bytes"] for one in mirrors.values()) == pytest.approx(2 * total, abs=2 * 2 * 40)  # and refs
    here.nas.forget()
    assert here.stage() == sorted(plan)

    # what is big was read once, and page15 not at all
    big = {path: size for path, size in read_of(here).items() if size >= MIB}
    assert sum(big.values()) == sum(
        len(data) for data in (*wanted.values(), *caches.draft.files.values()) if len(data) >= MIB
    )
    assert not [path for path in read_of(here) if "page15" in path]
    for node in here.nodes:
        mirror = node.path(WEIGHTS)
        assert sorted(path.name for path in mirror.iterdir()) == [caches.draft.name, caches.model.name]
        for cache, files in ((caches.model, wanted), (caches.draft, caches.draft.files)):
            snapshot = mirror / cache.name / "snapshots" / COMMIT
            assert {str(one.relative_to(snapshot)) for one in snapshot.rglob("*") if one.is_symlink()} == set(files)
            for path, data in files.items():
                blob = mirror / cache.name / "blobs" / cache.blob(path).name
                assert os.readlink(snapshot / path) == "../" * (2 + path.count("/")) + f"blobs/{blob.name}"
                assert blob.read_bytes() == data
                assert not blob.is_symlink()
        tree, draft = exported(node, "model"), exported(node, "draft")
        for folder, cache in ((tree, caches.model), (draft, caches.draft)):
            seen = {str(one.relative_to(folder)): one for one in folder.rglob("*") if not one.is_dir()}
            seen = {path: one for path, one in seen.items() if not path.startswith(".sparkbuild/")}
            assert set(seen) == set(cache.files)
            for path, one in seen.items():
                assert not one.is_symlink(), "opened with O_NOFOLLOW"
                if path in PAGES:
                    assert one.stat().st_size == 0, "bound over"
                else:
                    assert os.path.samefile(one, mirror / cache.name / "blobs" / cache.blob(path).name)
        mounts = json.loads((tree / ".sparkbuild/mounts.json").read_text())["mounts"]
        assert {mount["target"] for mount in mounts} == {"/model", *(f"/model/{path}" for path in PAGES)}
        assert all(mount["read_only"] for mount in mounts)
        for mount in mounts[1:]:
            path = mount["target"].removeprefix("/model/")
            assert mount["source"] == f"{AT}/hub/{caches.model.name}/snapshots/{COMMIT}/{path}"
            assert node.path(mount["source"]).read_bytes()[:4096] == caches.model.files[path][:4096]
    here.nothing_to_do()
    # a wiped node takes all from the other one
    here.nodes[0].run(["rm", "-rf", f"{STORE}/staged", f"{STORE}/exported"], check=True)
    here.nas.forget()
    assert here.stage() == sorted(task for task in plan if f":{here.nodes[0].name}:" in task)
    assert not [path for path, size in read_of(here).items() if size >= MIB], "the other node has it"


@pytest.mark.long
def test_exl3_from_a_nas_that_tells_what_was_a_minute_ago(site: Any, tmp_path: Path) -> None:
    """For a minute `stat` answers with the right size for the end of a link that is gone, and with half the size for a
    file that was whole since: a check of sizes called such a mirror complete. What cannot be opened is refused, and
    nothing of it looks whole; when it is back, all is staged as it is now.
    """
    root = tmp_path / "nas/hub"
    model, draft = HubCache(root, MODEL, COMMIT), HubCache(root, DRAFT, COMMIT)
    for cache in (model, draft):
        cache.add("model.safetensors", random.Random(1).randbytes(200_000), TWO_HOP)
        cache.ref()
    model.add("table.bin", random.Random(2).randbytes(100_000), REAL)  # nothing says its hash
    model.add(PAGES[1], b"rows", REAL)
    stored, grown = model.blob("model.safetensors").resolve(), model.snapshot / "table.bin"
    os.truncate(grown, 50_000)
    here = site(EXL3, root.parent, 2, attr_s=60, entry_s=60)
    look = ["stat", "-c", "%s", *(f"{AT}/hub/{path.relative_to(root)}" for path in (stored, grown))]
    for node in here.nodes:
        node.run(look, check=True)
    stored.rename(tmp_path / "aside")
    grown.write_bytes(model.files["table.bin"])
    assert [node.run(look).out for node in here.nodes] == ["200000\n50000\n"] * 2, "this machine is too slow"
    refused = here.lanes.fails(f"stage:{EXL3}")
    assert "a file of the source went away" in refused.text
    assert stored.name in refused.text
    for node in here.nodes:
        assert not node.path(f"{WEIGHTS}/{model.name}/.sparkbuild/ledger.json").exists()
    (tmp_path / "aside").rename(stored)
    here.stage()
    for node in here.nodes:
        mirror = node.path(f"{WEIGHTS}/{model.name}")
        blob = mirror / "blobs" / model.blob("model.safetensors").name
        assert blob.read_bytes() == model.files["model.safetensors"]
        assert (mirror / "snapshots" / COMMIT / "table.bin").read_bytes() == model.files["table.bin"]


def read_of(site: Site) -> dict[str, int]:
    """How many bytes of each file of the NAS were read."""
    found: dict[str, int] = {}
    for one in site.nas.reads():
        found[one.path] = found.get(one.path, 0) + one.size
    return found
