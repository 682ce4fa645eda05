"""The recipe demo-2x on the nodes of a rack: a workspace to serve it from, and what is seen of it on the nodes.

What it is made of (the image's archive, its packages, the weights) is made once and shared: SPARKBUILD_TEST_CACHE.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests import bad_engine, warm
from tests.engine import ROOT, healthy
from tests.rack.engine import _OverSocket
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.rack.reach import agents
from tests.workspace_tool import Tool, bare, finish, until

RECIPE = "demo-2x"
NAME = f"sparkbuild-{RECIPE}"
STORE = "/srv/sparkbuild"
PORT = 8432
CLAIM = "@sparkbuild-launch"
AGENTS = "/srv/agents.log"
PYTHON = "/srv/counted-python"
_COUNTED = f"""\
#!/bin/sh
for last; do :; done
echo "$last" >>{AGENTS}
exec /usr/bin/python3 "$@"
"""

# Whatever a test did, the next one starts from here: no container, no record, no secret.
_RESET = f"""
ids=$(docker ps --all --quiet) && [ -z "$ids" ] || docker rm --force $ids >/dev/null
rm -rf {STORE}/lanes /dev/shm/sparkbuild-* {AGENTS}
"""
_IMPATIENT = """
import sys
from sparkbuild.nodes.ssh import link
from sparkbuild.serving.ready import watching
link.PULSE, link.PATIENCE, watching.LOST = 1.0, 3.0, 4.0
from doit.__main__ import main
sys.exit(main())
"""
# A rank that neither joins nor ends: what is tested of it needs no engine.
SLEEP = 'command = ["{{ image.python }}", "-c", "import time; print(1, flush=True); time.sleep(999)"]'


class Lanes(Tool):
    """doit in a workspace that holds demo-2x and its image, for the nodes of a rack."""

    def __init__(self, root: Path, rack: Rack, store: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(root, env)
        self.rack = rack
        self.store = store
        self.nodes = rack.nodes
        self.impatient = False

    def give_up_soon(self) -> None:
        """From here on, a node that says nothing is given up after seconds, not after a minute."""
        self.impatient = True
        (Path(self.env["HOME"]) / ".ssh/config").write_text("Host *\n    ConnectTimeout 2\n")

    def start(self, *args: str) -> subprocess.Popen[str]:
        """See Tool."""
        if not self.impatient:
            return super().start(*args)
        pipe = subprocess.PIPE
        return warm.start(
            ["-c", _IMPATIENT, *args],
            cwd=self.root,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    # -- the workspace -------------------------------------------------------------------------------------------

    def config(self, *, pinned: bool = True, clusters: str = "", **fields: Any) -> None:
        """Write config.toml. `fields` go into the table of every node; one that is None is left out."""
        tables = [f'[nodes.local]\nconnection = "local"\nstore = {json.dumps(str(self.store))}\n']
        for node in self.nodes:
            given: dict[str, Any] = {
                "connection": "ssh",
                "address": node.address,
                "user": "root",
                "key": str(node.key_file),
                "host_key": node.host_key if pinned else None,
                "store": STORE,
                "offline": True,
                **fields,
            }
            lines = [f"{name} = {json.dumps(value)}" for name, value in given.items() if value is not None]
            tables.append("\n".join([f"[nodes.{node.name}]", *lines, ""]))
        names = json.dumps([node.name for node in self.nodes[:2]])
        clusters = clusters or f"[clusters.pair]\nnodes = {names}\n"
        (self.root / "config.toml").write_text("\n".join([*tables, clusters]))

    def path(self, recipe: str = RECIPE) -> Path:
        """The recipe's file."""
        return self.root / "recipes" / recipe / "recipe.toml"

    def edit(self, old: str, new: str, recipe: str = RECIPE) -> None:
        """Replace the first `old` in a recipe."""
        text = self.path(recipe).read_text()
        assert old in text, text
        self.path(recipe).write_text(text.replace(old, new, 1))

    def serve_with(self, lines: str, recipe: str = RECIPE) -> None:
        """Add keys to [serve]."""
        self.edit("[serve]\n", f"[serve]\n{lines}\n", recipe)

    def other(self, name: str, port: int, cluster: str = "pair") -> None:
        """A second recipe that stages what the first does."""
        shutil.copytree(self.path().parent, self.path(name).parent)
        self.edit(f"port = {PORT}", f"port = {port}", name)
        self.edit('cluster = "pair"', f'cluster = "{cluster}"', name)

    def sleeping(self, recipe: str = RECIPE) -> None:
        """Ranks that only live."""
        text = self.path(recipe).read_text()
        begin, end = text.index("command = "), text.index("port = ")
        rest = text[end:].partition("[[gates]]")[0]
        self.path(recipe).write_text(f"{text[:begin]}{SLEEP}\nwait = false\n{rest}")

    def bad(self, *options: str, host: str = "{{ host }}", recipe: str = RECIPE, more: str = "") -> None:
        """Rank 0 is an engine that misbehaves (tests/bad_engine.py, to which `options` go), the others only live.
        `more` goes into [serve].
        """
        folder = self.path(recipe).parent
        shutil.copy(ROOT / "tests/bad_engine.py", folder)
        head = ["{{ recipe.dir }}/bad_engine.py", "--host", host, "--port", "{{ port }}", *options]
        workers = ["-c", "import time; print(1, flush=True); time.sleep(999)"]
        text = self.path(recipe).read_text()
        begin, end = text.index("command = "), text.index("port = ")
        command = (
            f'command = ["{{{{ image.python }}}}"]\nhead_args = {json.dumps(head)}\n'
            f"worker_args = {json.dumps(workers)}\n{more}\n"
        )
        text = f"{text[:begin]}{command}{text[end:]}".replace('["chat.jinja"]', '["chat.jinja", "bad_engine.py"]')
        self.path(recipe).write_text(text.replace('"smollm2-135m"', json.dumps(bad_engine.MODEL_ID)))

    # -- what it does --------------------------------------------------------------------------------------------

    def serve(self, *options: str, recipe: str = RECIPE) -> dict[str, Any]:
        """Serve it; returns its row of `doit status`."""
        self.ok(f"serve:{recipe}", *options)
        return self.row(recipe)

    def row(self, recipe: str = RECIPE) -> dict[str, Any]:
        """Its row of `doit status --json`."""
        rows = json.loads(self.ok("status", "--json").out)["lanes"]
        return dict(next(row for row in rows if row["recipe"] == recipe))

    def reasons(self, task: str = f"serve:{RECIPE}") -> list[str]:
        """Why a task would run."""
        return [str(reason["text"]) for reason in self.plan(task)[task]["reasons"]]

    def state(self, task: str = f"serve:{RECIPE}") -> str:
        """Its state in the plan."""
        return self.states(task)[task]

    def start_and_wait(self, moment: str, *args: str, seconds: float = 60) -> subprocess.Popen[str]:
        """Start doit, and return at the moment that is named, one of `MOMENTS`."""
        process = self.start(*(args or (f"serve:{RECIPE}",)))
        try:
            until(lambda: self.reached(moment) or process.poll() is not None, seconds)
        except BaseException:
            process.kill()
            print(finish(process))
            raise
        return process

    def wait_for_start(self, process: subprocess.Popen[str]) -> None:
        """Until a run that was started begins to make the lane."""
        until(lambda: self.reached("starting") or process.poll() is not None, 60)

    def reached(self, moment: str) -> bool:
        """Has the run come that far."""
        return bool(_MOMENTS[moment](self))

    def log(self, task: str = f"serve:{RECIPE}") -> str:
        """The log of a task in the newest run that has one."""
        logs = sorted((self.root / ".sparkbuild/runs").glob(f"*/{task.replace(':', '_')}.log"))
        return logs[-1].read_text() if logs else ""

    def has_begun(self, task: str) -> bool:
        """Did a run begin to make it."""
        return any(entry["event"] == "start" and entry["task"] == task for entry in self.runs())

    def everything_written(self) -> str:
        """All files of the workspace that a run writes."""
        files = [path for path in (self.root / ".sparkbuild").rglob("*") if path.is_file()]
        return "\n".join(path.read_bytes().decode(errors="replace") for path in files)

    # -- what is on the nodes ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where the lane answers."""
        return f"http://{self.nodes[0].address}:{PORT}"

    def answers(self) -> bool:
        """Does it answer."""
        return healthy(self.url)

    def left(self) -> list[str]:
        """What of a launch is on the nodes: living or created containers, claims, secrets; [] when nothing is."""
        return [f"{node.name}: {line}" for node in self.nodes if node.is_on() for line in self.left_on(node)]

    def left_on(self, node: Node) -> list[str]:
        """As `left`, of one node; docker need not run there."""
        return node.run(["sh", "-c", _LEFT], check=True).out.splitlines()

    def is_gone(self) -> bool:
        """Nothing is left, within the moment that an agent takes to notice that nobody wants it any more."""
        try:
            until(lambda: not self.left(), 10)
        except AssertionError:
            return False
        return True

    def reset(self) -> None:
        """Nodes as new, but for the image and the weights."""
        for node in self.nodes:
            node.boot()
            node.heal()
            node.rate(None)
            node.free_disk()
            node.docker.start()
            node.run(["sh", "-c", _RESET], timeout=60)
            node.path(PYTHON).write_text(_COUNTED)
            node.path(PYTHON).chmod(0o755)


_LEFT = f"""
docker ps --all --filter label=sparkbuild.recipe --filter status=running --filter status=created \
    --filter status=paused --filter status=restarting --format '{{{{.Names}}}} {{{{.State}}}}'
grep -o '{CLAIM}' /proc/net/unix
find /dev/shm -path '*sparkbuild-*' -type f 2>/dev/null
true
"""


def shell(node: Node, script: str, *args: str) -> str:
    """Run a shell script on a node."""
    return node.run(["sh", "-c", script, "sh", *args], check=True).out


def box(node: Node, recipe: str = RECIPE) -> dict[str, Any]:
    """What docker says of the recipe's container; {} when there is none. Asked over its socket: that takes 3 ms."""
    with closing(_OverSocket(node.docker.socket)) as connection:
        try:
            connection.request("GET", f"/containers/sparkbuild-{recipe}/json")
            answer = connection.getresponse()
            return dict(json.load(answer)) if answer.status == 200 else {}
        except (OSError, http.client.HTTPException):
            return {}


def is_running(node: Node, recipe: str = RECIPE) -> bool:
    """Does the recipe's container run."""
    return bool(box(node, recipe).get("State", {}).get("Running"))


def names(node: Node) -> list[str]:
    """All containers, in any state."""
    return sorted(node.docker("ps", "--all", "--format", "{{.Names}} {{.State}}").out.splitlines())


def record(node: Node, recipe: str = RECIPE) -> dict[str, Any]:
    """The lane's record on a node; {} when there is none."""
    try:
        return dict(json.loads(node.path(f"{STORE}/lanes/{recipe}/lane.json").read_text()))
    except FileNotFoundError:
        return {}


def is_claimed(node: Node) -> bool:
    """Does a launch hold the node."""
    return CLAIM in Path(f"/proc/{node.pid}/net/unix").read_text()


def _has_secret(node: Node) -> bool:
    return any(node.path("/dev/shm").glob("sparkbuild-*/*/*/*"))


_MOMENTS: dict[str, Callable[[Lanes], object]] = {
    "starting": lambda lanes: lanes.has_begun(f"serve:{RECIPE}"),
    "held": lambda lanes: any(is_claimed(node) for node in lanes.nodes),
    "prepared": lambda lanes: _has_secret(lanes.nodes[0]),
    "created": lambda lanes: bool(record(lanes.nodes[0])),
    "head": lambda lanes: is_running(lanes.nodes[0]),
    "worker": lambda lanes: is_running(lanes.nodes[1]),
    "loading": lambda lanes: "serve.py: loading" in lanes.log(),
    "gates": lambda lanes: bool(record(lanes.nodes[0]).get("ready")),
    "watched": lambda lanes: all(agents(node, "watch") for node in lanes.nodes),
}
MOMENTS = tuple(_MOMENTS)


def make_store(cache: Path) -> Path:
    """A store of this machine in which demo-ranks is assembled and the weights are fetched, by doit itself."""
    cache.mkdir(parents=True, exist_ok=True)
    store = cache / "lanes"
    root = cache / "lanes-workspace"
    with (cache / "lanes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tool = bare(root)
        _copy(root, "recipes/demo")
        (root / "config.toml").write_text(f"[nodes.local]\nstore = {json.dumps(str(store))}\n\n{_LOCAL}")
        tool.ok("image:demo-ranks", "artifact:demo:smollm2", timeout=900)
    return store


def workspace(root: Path, rack: Rack, store: Path, env: Mapping[str, str] | None = None) -> Lanes:
    """A new workspace with the recipe and its image, for the first two nodes of the rack."""
    bare(root)
    _copy(root, f"recipes/{RECIPE}")
    home = root / "home"
    (home / ".ssh").mkdir(parents=True)
    lanes = Lanes(root, rack, store, {"HOME": str(home), **(env or {})})
    lanes.config()
    return lanes


def _copy(root: Path, *folders: str) -> None:
    for folder in ("images/demo-ranks", "images/llamacpp", "images/harness", "locks", *folders):
        ignored = shutil.ignore_patterns("__pycache__", "reports")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored, dirs_exist_ok=True)


_LOCAL = '[clusters.local]\nnodes = ["local"]\n'
