"""The campaign in its shortest form: always the same rounds. The long tier has a longer one, with a new seed."""

from __future__ import annotations

import random

import pytest

from tests.campaign.__main__ import campaign, show
from tests.campaign.faults import WEIGHTS, draw

pytestmark = pytest.mark.usefixtures("possible")
SEED = 20261130


def test_the_same_seed_draws_the_same_faults() -> None:
    drawn = [draw(random.Random(SEED), 3, 6.0) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert {fault.kind for fault in draw(random.Random(SEED), 300, 6.0)} == set(WEIGHTS)


def test_a_short_campaign() -> None:
    count = campaign(SEED, minutes=1.5)
    show(count)
    assert count.rounds
    assert not count.violations, "\n".join(count.violations)


@pytest.mark.long
def test_a_long_campaign() -> None:
    count = campaign(random.SystemRandom().randrange(1 << 31), minutes=15)
    show(count)
    assert not count.violations, "\n".join(count.violations)
