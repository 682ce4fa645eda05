"""What commands with nothing to do cost here, beside another checkout of sparkbuild: is a new version slower?

    .venv/bin/python benchmarks/beside.py [--other CHECKOUT] [--rounds N] [--blocks N] [--smallest]

CHECKOUT has its own `.venv` (`./doitw --version` makes it); without one, this checkout is compared with itself. Each
serves a workspace of its own of one recipe with staged artifacts; as root in a network namespace of its own, so that
neither has to look at the lane of the other. The commands are then timed in turn, here and there, and the ratio is
taken pair by pair: its median and spread are printed, of wall time and of CPU time with that of children. CPU time is
what repeats on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from many_goals import write_workspace
from needs import ROOT, options

COMMANDS = ("--version", "list", "plan", "serve:r0")


class Side(NamedTuple):
    """A checkout, the workspace that it serves, and the words before each command: they enter its network."""

    checkout: Path
    workspace: Path
    enter: tuple[str, ...]

    def doit(self, *args: str) -> tuple[float, float]:
        """Wall and CPU seconds of one doit, children included. Ends this program when it fails."""
        env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPATH"] = str(self.checkout)
        before, start = os.times(), time.perf_counter()
        argv = [*self.enter, str(self.checkout / ".venv/bin/python"), "-m", "doit", *args]
        done = subprocess.run(argv, cwd=self.workspace, env=env, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - start, os.times()
        if done.returncode:
            raise SystemExit(f"doit {' '.join(args)} of {self.checkout} failed\n{done.stdout}\n{done.stderr}")
        return wall, sum(after[2:4]) - sum(before[2:4])


@contextmanager
def network() -> Iterator[tuple[str, ...]]:
    """The words that enter a network namespace with loopback alone; none for who is not root."""
    if os.geteuid():
        yield ()
        return
    argv = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 7200"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        try:
            if holder.stdout is None or holder.stdout.readline() != b"up\n":
                raise SystemExit("unshare (util-linux) or ip (iproute2) failed; as another user they are not needed")
            yield ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        finally:
            holder.kill()


def main() -> None:
    """Serve both, time in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, default=ROOT)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--blocks", type=int, default=99, help="staged artifacts")
    given = options(parser, {"rounds": 1, "blocks": 1})
    checkouts = {"here": ROOT, "there": given.other.resolve()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkbuild-bench.")))
        sides = [Side(checkout, folder / name, stack.enter_context(network())) for name, checkout in checkouts.items()]
        try:
            for side in sides:
                side.workspace.mkdir()
                write_workspace(side.workspace, given.blocks)
                side.doit("serve:r0")
            print("| command | wall, median of the ratios | CPU | CPU ms here, there |")
            print("|---|---|---|---|")
            for command in COMMANDS:
                print(row(command, [(sides[0].doit(command), sides[1].doit(command)) for _ in range(given.rounds)]))
        finally:
            for side in sides:
                if (side.workspace / "dodo.py").exists():
                    side.doit("stop:r0")


def row(command: str, pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """A line of the table."""
    walls = [here[0] / there[0] for here, there in pairs]
    ratios = [here[1] / max(there[1], 0.01) for here, there in pairs]
    here_ms, there_ms = (statistics.median(pair[side][1] for pair in pairs) * 1e3 for side in (0, 1))
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| `doit {command}` | {statistics.median(walls):.2f} | {spread} | {here_ms:.0f}, {there_ms:.0f} |"


if __name__ == "__main__":
    main()
