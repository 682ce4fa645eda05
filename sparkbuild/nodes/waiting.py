"""What is told while a node takes its time: who is asked, for what, and that it can be left."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sparkbuild.core.screen import complain

TELL = 3.0  # seconds
_SHOWN = 3  # sources
_ROOTS = ("path", "model", "cache")  # where what is staged has a folder


def sources(queries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The folders, most often on a NAS, that a node has to look at to answer."""
    whats = [query["what"] for query in queries if isinstance(query.get("what"), Mapping)]
    return list(dict.fromkeys(str(what[key]) for what in whats for key in _ROOTS if what.get(key)))


@contextmanager
def told(node: str, folders: Sequence[str]) -> Iterator[None]:
    """Say on stderr, once, that a node which has to look at these folders has not answered yet."""
    if not folders:
        yield
        return
    more = f" and {len(folders) - _SHOWN} more" if folders[_SHOWN:] else ""
    text = (
        f"{node} has not answered for {TELL:.0f} s: it looks at {', '.join(folders[:_SHOWN])}{more}. A file system "
        "that does not answer is given up after 20 s; ctrl-C leaves it at once"
    )
    timer = threading.Timer(TELL, complain, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
