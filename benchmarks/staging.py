"""How fast staging is, what it takes and what it leaves, each beside a reference in the same run.

    .venv/bin/python benchmarks/staging.py [--only copy,packing,look,memory] [--mib N] [--rounds N] [--folder PLACE]

The agent runs as it does on a node: a process of its own, its request on stdin, timed from its start to its end. Rounds
are interleaved in a random order, the source is dropped from the page cache before each, and the best of each counts:
the rest of the machine only ever makes things slower. With all hashes sha256 fills a processor at 2 GB/s, so on two of
them whatever else runs is taken from the copy: the rows with xxh3 only show the loop without it. Needs about five times
--mib of room, and 20 GB for `memory`. Nothing of it is a test. benchmarks/staging_chain.py has the four nodes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from needs import options
from staging_copy import copies, packing
from staging_look import looks, small_folders
from staging_memory import memory
from staging_tools import Row

PARTS = ("copy", "packing", "look", "memory")


def head() -> None:
    """The table's head."""
    print("| what | figure | beside | ratio | wanted | |\n|---|---|---|---|---|---|", flush=True)


def show(rows: list[Row]) -> None:
    """More rows of the table."""
    for row in rows:
        fields = (row.what, row.figure, row.beside, row.ratio, row.target, "pass" if row.passed else "MISSED")
        print("| " + " | ".join(fields) + " |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--gib", type=int, default=8, help="for `memory`")
    parser.add_argument("--files", type=int, default=10_000, help="for `memory`")
    parser.add_argument("--folder", help="where to work; the system's place for temporary files")
    small = {"mib": 8, "rounds": 1, "gib": 1, "files": 50}
    given = options(parser, small, programs=("cp", "sync"))
    wanted = given.only.split(",")
    notes = [f"best of {given.rounds} rounds; load {os.getloadavg()[0]:.1f} at the start"]
    head()
    with tempfile.TemporaryDirectory(prefix="sparkbuild-bench.", dir=given.folder) as name:
        work = Path(name)
        if "copy" in wanted:
            show(copies(work, given.mib, given.rounds))
        if "packing" in wanted:
            show(packing(work, given.mib, given.rounds))
        if "look" in wanted:
            show(looks(work, smallest=given.smallest))
            notes.append(small_folders(work, 20 if given.smallest else 1000))
        if "memory" in wanted:
            show(memory(work, given.gib, given.files))
    print("\n".join(notes) + f", {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
