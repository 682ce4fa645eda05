"""What looking costs: `doit list` and a null `doit plan` on about 1,000 goals, as ratios to `doit --version`.

    .venv/bin/python benchmarks/many_goals.py [--rounds N] [--keep DIR] [--smallest]

The workspace is real: a recipe with 499 staged artifacts and a served lane (a tiny HTTP server stands in for the
engine), made by doit itself first. All commands are then timed in turn, N rounds, and the best of each is compared:
on a shared machine the minimum is what repeats.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from needs import options

RECIPES, BLOCKS = 1, 499

DODO = """\
from sparkbuild.plugin.tasks import *
from sparkbuild.plugin.tasks import config
DOIT_CONFIG = config()
"""

ENGINE = '''\
"""The least that counts as an engine: health, model ids, one streamed token."""
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"{}" if self.path == "/health" else json.dumps({"data": [{"id": sys.argv[2]}]}).encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        chunk = json.dumps({"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]})
        self.answer(f"data: {chunk}\\n\\ndata: [DONE]\\n\\n".encode())
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def write_workspace(root: Path, blocks: int = BLOCKS) -> int:
    """Write the workspace, with so many staged artifacts for its recipe; returns how many goals it has."""
    (root / "dodo.py").write_text(DODO)
    (root / "config.toml").write_text('[nodes.local]\n\n[clusters.local]\nnodes = ["local"]\n')
    image = root / "images" / "tiny"
    image.mkdir(parents=True)
    (image / "requirements.lock").write_text("")
    (image / "engine.py").write_text(ENGINE)
    (image / "image.toml").write_text('kind = "venv"\nlock = "data"\nfiles = ["engine.py"]\n')
    data = root / "data"
    data.mkdir()
    lock = ["format=local-inference-source-lock/v1", f"input.images/tiny/requirements.lock.sha256={_sha256(b'')}"]
    for number in range(RECIPES * blocks):
        path = data / f"f{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"f{number}.bin", f"file {number}\n" * 100)
        url, digest = f"file:data/{path.name}", _sha256(path.read_bytes())
        lock += [f"f{number}.artifact.url={url}", f"f{number}.artifact.sha256={digest}"]
    (root / "locks").mkdir()
    (root / "locks" / "data.source.lock").write_text("\n".join(lock) + "\n")
    for number, port in enumerate(free_ports(RECIPES)):
        folder = root / "recipes" / f"r{number}"
        folder.mkdir(parents=True)
        staging = "".join(
            f'\n[[staging]]\nid = "b{block}"\nkind = "files"\nsrc = "artifact:data/f{number * blocks + block}"\n'
            for block in range(blocks)
        )
        (folder / "recipe.toml").write_text(
            f'cluster = "local"\nimage = "tiny"\nmodel_id = "m{number}"\n\n[serve]\nport = {port}\n'
            'command = ["{{ image.python }}", "{{ image.files }}/engine.py", "{{ port }}", "{{ model_id }}"]\n'
            + staging
        )
    return RECIPES * (2 * blocks + 1) + 1


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def doit(root: Path, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run doit in the workspace."""
    # compiled modules are kept, as in any shell that does not forbid it
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "doit", *args], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise SystemExit(f"doit {' '.join(args)} failed\n{done.stdout}\n{done.stderr}")
    return done


def seconds(root: Path, *args: str) -> tuple[float, float]:
    """Wall and CPU seconds (children included) of one doit."""
    before, start = os.times(), time.perf_counter()
    doit(root, *args)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, cpu


def main() -> None:
    """Make the workspace, time the commands, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", type=Path, help="make the workspace here and leave it (its lanes are stopped)")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="staged artifacts")
    args = options(parser, {"rounds": 1, "blocks": 3})
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary)
        if not (root / "dodo.py").exists():
            root.mkdir(parents=True, exist_ok=True)
            write_workspace(root, args.blocks)
        recipes = [path.name for path in sorted((root / "recipes").iterdir())]
        try:
            doit(root, "run", "-n", "8", *(f"serve:{name}" for name in recipes))
            measure(root, args.rounds)
        finally:
            for name in recipes:
                doit(root, f"stop:{name}", check=False)


def measure(root: Path, rounds: int) -> None:
    """Time the commands in turn and print the best of each."""
    goals = json.loads(doit(root, "plan", "--json").stdout)["goals"]
    stale = [goal["task"] for goal in goals if goal["state"] != "ok"]
    if stale:
        raise SystemExit(f"not a null plan: {stale[:5]}")
    commands = {"doit --version": ["--version"], "doit list": ["list"], "doit plan": ["plan"]}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            times[name].append(seconds(root, *argv))
    base_wall, base_cpu = (min(column) for column in zip(*times["doit --version"], strict=True))
    print(f"{len(goals)} goals, best of {rounds} rounds\n")
    print("| command | wall ms | x `doit --version` | CPU ms | x |")
    print("|---|---|---|---|---|")
    for name, pairs in times.items():
        wall, cpu = (min(column) for column in zip(*pairs, strict=True))
        print(f"| `{name}` | {wall * 1e3:.0f} | {wall / base_wall:.2f} | {cpu * 1e3:.0f} | {cpu / base_cpu:.2f} |")


if __name__ == "__main__":
    main()
