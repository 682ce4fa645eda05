"""The only room that knows doit: goals become tasks here, facts become up-to-date checks, effects become actions."""

from __future__ import annotations

import sys
from types import TracebackType

_before = sys.excepthook


def _quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A ctrl-C while doit still loads this room, before `core.interrupt` listens: nothing was begun."""
    if not issubclass(kind, KeyboardInterrupt):
        _before(kind, error, trace)


sys.excepthook = _quiet
