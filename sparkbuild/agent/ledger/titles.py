"""What a file of a staged folder is called in messages: a blob of a mirror is named by its paths in the snapshot.

`model-00001-of-00141.safetensors (blob 3f0c1a2b3c4d...)`: people know the first, and `ls` the second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from sparkbuild.agent.ledger.ledger import Link

_BLOBS, _SNAPSHOTS = "blobs/", "snapshots/"
_DIGITS = 12  # of a blob's name
_SHOWN = 2  # paths; more have the same content


class Titles:
    """The titles of one folder's files. Its links are gone through when the first title is asked for."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links = links
        self._paths: dict[str, list[str]] | None = None

    def of(self, name: str) -> str:
        """The title of one file; its name where no link leads to it."""
        if self._paths is None:
            self._paths = {}
            for link in self._links:
                leads = os.path.normpath(os.path.join(os.path.dirname(link.name), link.text))
                self._paths.setdefault(leads, []).append(link.name)
        return title(name, sorted({_short(path) for path in self._paths.get(name, ())}))


def title(name: str, paths: Sequence[str]) -> str:
    """The title of a file that these paths of the snapshot lead to."""
    if not paths:
        return name
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(paths[:_SHOWN])}{more} ({_content(name)})"


def _short(path: str) -> str:
    """A path of the snapshot without the snapshot's folder."""
    return path.split("/", 2)[-1] if path.startswith(_SNAPSHOTS) and path.count("/") > 1 else path


def _content(name: str) -> str:
    return f"blob {name.removeprefix(_BLOBS)[:_DIGITS]}..." if name.startswith(_BLOBS) else name
