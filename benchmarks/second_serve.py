"""What a serve costs when there is nothing to do: `./doitw serve:demo` again, beside `./doitw --version`.

    .venv/bin/python benchmarks/second_serve.py [--rounds N]

Serves the demo first if it is not served yet, and stops it again then. While the second serve is timed, the artifact
that the weights were staged from is moved away: what is not there cannot be read.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARTIFACTS = ROOT / ".sparkbuild" / "node" / "artifacts"


def doitw(*args: str) -> subprocess.CompletedProcess[str]:
    """Run ./doitw; ends this program when it fails."""
    argv = [str(ROOT / "doitw"), *args]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"./doitw {' '.join(args)} failed\n{done.stdout}{done.stderr}")
    return done


def best(rounds: int, *args: str) -> tuple[float, str]:
    """Least seconds of several runs, and what the last one printed."""
    times = []
    out = ""
    for _ in range(rounds):
        start = time.perf_counter()
        out = doitw(*args).stdout
        times.append(time.perf_counter() - start)
    return min(times), out


def main() -> None:
    """Serve, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    was_serving = "serving" in doitw("status", "demo").stdout
    doitw("serve:demo")
    hidden = ARTIFACTS.with_name("artifacts.hidden")
    ARTIFACTS.rename(hidden)
    try:
        version, _ = best(rounds, "--version")
        serve, out = best(rounds, "serve:demo")
    finally:
        hidden.rename(ARTIFACTS)
        if not was_serving:
            doitw("stop:demo")
    made = len(re.findall(r"^run ", out, re.MULTILINE))
    print(f"best of {rounds}: `./doitw --version` {version * 1e3:.0f} ms, `./doitw serve:demo` {serve * 1e3:.0f} ms:")
    print(f"{(serve - version) * 1e3:.0f} ms more, {made} actions, the artifact moved away meanwhile")


if __name__ == "__main__":
    main()
