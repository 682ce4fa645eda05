"""What a serve costs when there is nothing to do: `doit serve:demo` again, beside `doit --version`.

    .venv/bin/python benchmarks/second_serve.py [--rounds N] [--smallest]

Serves the demo from a workspace of its own, on a port that is free, and stops it again. While the second serve is
timed, the artifact that the weights were staged from is moved away: what is not there cannot be read. `--smallest`
serves a tiny HTTP server in the engine's place, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from pathlib import Path

from many_goals import DODO, doit, free_ports, write_workspace
from needs import ROOT, options


def write_demo(root: Path) -> str:
    """A workspace with the demo alone, on a free port; the name of its recipe."""
    for name in ("images/llamacpp", "images/harness", "locks", "recipes/demo"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "reports"))
    (root / "dodo.py").write_text(DODO)
    (root / "config.toml").write_text('[nodes.local]\n\n[clusters.local]\nnodes = ["local"]\n')
    on_a_free_port(root / "recipes/demo/recipe.toml")
    return "demo"


def on_a_free_port(recipe: Path) -> None:
    """Whatever runs on this machine, the recipe is not in its way."""
    text, count = re.subn(r"^port = \d+$", f"port = {free_ports(1)[0]}", recipe.read_text(), flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{recipe} has {count} ports")
    recipe.write_text(text)


def best(root: Path, rounds: int, *args: str) -> tuple[float, str]:
    """Least seconds of several runs, and what the last one printed."""
    times = []
    out = ""
    for _ in range(rounds):
        start = time.perf_counter()
        out = doit(root, *args).stdout
        times.append(time.perf_counter() - start)
    return min(times), out


def main() -> None:
    """Serve, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    given = options(parser, {"rounds": 1})
    rounds = given.rounds
    with tempfile.TemporaryDirectory(prefix="sparkbuild-bench.") as folder:
        root = Path(folder)
        if given.smallest:
            write_workspace(root, 1)
        recipe = "r0" if given.smallest else write_demo(root)
        task, artifacts = f"serve:{recipe}", root / ".sparkbuild/node/artifacts"
        hidden = artifacts.with_name("artifacts.hidden")
        try:
            doit(root, task)
            artifacts.rename(hidden)
            version, _ = best(root, rounds, "--version")
            serve, out = best(root, rounds, task)
        finally:
            if hidden.exists():
                hidden.rename(artifacts)
            doit(root, f"stop:{recipe}", check=False)
    made = len(re.findall(r"^run ", out, re.MULTILINE))
    print(f"best of {rounds}: `doit --version` {version * 1e3:.0f} ms, `doit {task}` {serve * 1e3:.0f} ms:")
    print(f"{(serve - version) * 1e3:.0f} ms more, {made} actions, the artifact moved away meanwhile")


if __name__ == "__main__":
    main()
