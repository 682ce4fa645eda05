"""Times as both programs tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

LATEST = 1e11  # unix seconds: what is later is in no calendar

if TYPE_CHECKING:
    Time = float
else:

    class Time(float):
        """Unix seconds from 0 to LATEST. To its maker it is a float; who takes an answer holds it against these bounds,
        since a wrong clock, or a record that others wrote, may say anything.
        """
