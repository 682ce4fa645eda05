"""`python -m tests.campaign`: random faults on a rack while two operators work; needs root."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.campaign.faults import WEIGHTS
from tests.campaign.rounds import Count, Round
from tests.campaign.site import site
from tests.rack.proc import RackError

ABOUT = """\
Random faults while two operators work on two nodes: kills of operators, agents, ranks, nodes and dockerd, cuts, full
disks. After each round a program that uses nothing of the product looks at disks, /proc and docker: nothing wrong is
under a right name; no process, container, hold or part is there that nobody names; the next run needs no hand.

    python -m tests.campaign --minutes 30                 a new seed, which is printed
    python -m tests.campaign --seed 7 --first 12 --rounds 1   round 12 of seed 7 again: same work, faults, moments

Moments are the same to the hundredth of a second, the machine's speed is not: a round may have to be done again.
"""


def campaign(seed: int, *, minutes: float, rounds: int = 0, first: int = 0, keep_going: bool = False) -> Count:
    """Rounds until the time is over, or so many; ends at the first violation unless `keep_going`. Prints as it goes."""
    count, began = Count(), time.monotonic()
    print(f"campaign: seed {seed}, {minutes:g} min" + (f", {rounds} rounds from {first}" if rounds else ""), flush=True)
    with tempfile.TemporaryDirectory(prefix="sparkbuild-campaign.") as folder, site(Path(folder), seed) as place:
        number = first
        while (number - first < rounds) if rounds else (time.monotonic() - began < minutes * 60):
            one = Round(place, seed, number, count)
            try:
                problems = one.run()
            except (RackError, AssertionError):
                print(*one.history, sep="\n", flush=True)
                raise
            print(f"round {number}: {'; '.join(problems) or 'well'}", flush=True)
            if problems:
                count.violations += problems
                print(*one.history, sep="\n")
                print(f"again: python -m tests.campaign --seed {seed} --first {number} --rounds 1", flush=True)
                if not keep_going:
                    break
            number += 1
    return count


def show(count: Count) -> None:
    """The figures, as the tables of docs/reliability.md have them."""
    print(f"\n{count.rounds} rounds, {len(count.violations)} violations")
    print("\n| fault | met work | met nothing |\n|---|---|---|")
    for kind in WEIGHTS:
        print(f"| {kind} | {count.faults[kind]} | {count.missed[kind]} |")
    print("\n| runs that were disturbed | n |\n|---|---|")
    for outcome, n in sorted(count.runs.items()):
        print(f"| ended {outcome} | {n} |")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long; the last round is finished")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first violation")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    try:
        count = campaign(
            seed, minutes=given.minutes, rounds=given.rounds, first=given.first, keep_going=given.keep_going
        )
    except RackError as error:
        print(error, file=sys.stderr)
        return 2
    show(count)
    return 1 if count.violations else 0


if __name__ == "__main__":
    sys.exit(main())
