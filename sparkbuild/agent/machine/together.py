"""Several looks at the same time, with one time limit: what hangs (a dead NAS, a lost peer) holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Key = TypeVar("Key")
T = TypeVar("T")


class Looks:
    """Looks that go on beside each other. One that is not back `timeout` seconds from now is a TimeoutError; its thread
    goes on and is forgotten, so a look must be of a kind that may end late.
    """

    def __init__(self, timeout: float) -> None:
        self._end = time.monotonic() + timeout
        self._late = TimeoutError(f"no answer within {timeout:g} s")

    def begin(self, look: Callable[[], T]) -> Callable[[], T | Exception]:
        """Begin one; what is given waits for it, and says what it returned or raised."""
        outcome: list[T | Exception] = []

        def run() -> None:
            try:
                outcome.append(look())
            except Exception as error:  # noqa: BLE001 - handed to the caller, who knows what may go wrong
                outcome.append(error)

        def wait() -> T | Exception:
            thread.join(max(0.0, self._end - time.monotonic()))
            return outcome[0] if outcome else self._late

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return wait


def together(looks: Mapping[Key, Callable[[], T]], timeout: float) -> dict[Key, T | Exception]:
    """What each of several looks of one kind returned or raised, in their order; see Looks."""
    begun = Looks(timeout)
    waits = {key: begun.begin(look) for key, look in looks.items()}
    return {key: wait() for key, wait in waits.items()}
