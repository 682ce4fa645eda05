"""Several looks at the same time, with one time limit: what hangs (a dead NAS, a lost peer) holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")


def together(looks: Mapping[Key, Callable[[], Found]], timeout: float) -> dict[Key, Found | Exception]:
    """What each look returned or raised, in their order. One that is not back in time is a TimeoutError; its thread
    goes on and is forgotten, so a look must be of a kind that may end late.
    """
    found: dict[Key, Found | Exception] = {}

    def run(key: Key, look: Callable[[], Found]) -> None:
        try:
            found[key] = look()
        except Exception as error:  # noqa: BLE001 - handed to the caller, who knows what may go wrong
            found[key] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in looks.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = TimeoutError(f"no answer within {timeout:g} s")
    return {key: found.get(key, late) for key in looks}
