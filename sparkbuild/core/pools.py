"""Named pools: how many steps may do the same kind of thing at once (`build`, `nas`, one per node)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sparkbuild.core.interrupt import Cancel, cancel

DEFAULT_SIZE = 2


class Pools:
    """Counting semaphores by name; a name without a size gets `DEFAULT_SIZE`."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._made: dict[str, threading.Semaphore] = {}
        self._guard = threading.Lock()

    def _pool(self, name: str) -> threading.Semaphore:
        with self._guard:
            if name not in self._made:
                self._made[name] = threading.Semaphore(self._sizes.get(name, DEFAULT_SIZE))
            return self._made[name]

    @contextmanager
    def hold(self, names: Iterable[str], cancelled: Cancel = cancel) -> Iterator[None]:
        """Take one place in each pool, in sorted order so that no two holders wait for each other."""
        held = []
        try:
            for name in sorted(set(names)):
                pool = self._pool(name)
                while not pool.acquire(timeout=0.2):
                    cancelled.check()
                held.append(pool)
            yield
        finally:
            for pool in reversed(held):
                pool.release()

    @contextmanager
    def take(self, name: str, most: int, cancelled: Cancel = cancel) -> Iterator[int]:
        """Take one place of a pool, and as many more as are free at this moment, up to `most`; yields how many."""
        pool = self._pool(name)
        while not pool.acquire(timeout=0.2):
            cancelled.check()
        held = 1
        try:
            while held < most and pool.acquire(blocking=False):
                held += 1
            yield held
        finally:
            pool.release(held)
