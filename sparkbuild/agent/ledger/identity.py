"""How what names a source is written, here and by earlier releases: what these read is not read again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkbuild.agent.ledger.ledger import Identity


def forms(identity: Identity) -> Sequence[Identity]:
    """An identity, and as the release of 2026-11-30 wrote it: a version of a file (source.versions) was its size, mtime
    and ctime there, without device and inode.
    """
    version = identity.get("version")
    with suppress(ValueError):
        if isinstance(version, str):
            _, size, mtime_ns, ctime_ns, _ = version.split(" ", 4)
            rest = {key: value for key, value in identity.items() if key != "version"}
            return identity, {**rest, "size": int(size), "mtime_ns": int(mtime_ns), "ctime_ns": int(ctime_ns)}
    return (identity,)
