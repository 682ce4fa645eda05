"""Rows that are mended: is their source still the one that they were staged from?

Good chunks of one table and new ones of another must not meet in a file, and no file of 25 GB is given up for one bad
chunk of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.ledger.ledger import Identity, Ledger
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.source.versions import moment
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import StageRequest

_KINDS = ("packed", "page15", "sparse-copy")
_VERSION = ("inode", "size", "mtime_ns", "ctime_ns")
# Whatever else an identity has (revision, config, index) says where the rows were found, not which they are.
_BYTES = ("blob", "header_sha256", "sample", "rows", "lo", "hi", *_VERSION)


def as_staged(
    wanted: list[Wanted], before: Ledger, request: StageRequest
) -> tuple[list[Wanted], dict[str, AgentError]]:
    """The wanted files, each as the ledger knows it, so that it is kept or mended; and by name, for those whose source
    is another by now, why nothing of it can be used.

    For a staging that was not told to look at its source anew ("full") and wants what the ledger has ("key"); in
    others, and for other kinds, they are as they were. `request["task"]` is what doit calls it.
    """
    others: dict[str, AgentError] = {}
    if request.get("full") or before.key != request["key"] or request["what"]["kind"] not in _KINDS:
        return wanted, others
    records = {record.name: record for record in before.files}
    as_known = []
    for item in wanted:
        record = records.get(item.name)
        if record is None or item.is_in(record) or record.source.get("kind") != item.identity["kind"]:
            as_known.append(item)
            continue
        for was, now in zip(_tables(record.source), _tables(item.identity), strict=False):
            other = [key for key in _BYTES if key in was and was[key] != now.get(key)]
            if other and item.name not in others:
                others[item.name] = _another(item, other, was, now, request)
        as_known.append(item._replace(identity=record.source))
    return as_known, others


def _tables(identity: Identity) -> list[Identity]:
    """Of a sparse copy there may be several in one shard."""
    tables = identity.get("tables")
    return tables if isinstance(tables, list) and tables else [identity]


def _another(wanted: Wanted, other: list[str], was: Identity, now: Identity, request: StageRequest) -> AgentError:
    keys = [key for key in _BYTES if key in other or (key in _VERSION and not set(_VERSION).isdisjoint(other))]
    return AgentError(
        f"the source of {wanted.called} is another by now than the one it was staged from",
        kind="integrity",
        where=wanted.path,
        found=_told(keys, now),
        wanted=_told(keys, was),
        next=f"doit -a {request.get('task') or 'stage:...'} stages the new one as a whole; until then all that "
        "is here stays as it is, good chunks too",
    )


def _told(keys: list[str], identity: Identity) -> str:
    words = {
        "blob": "blob {}",
        "header_sha256": "header sha256 {}",
        "sample": "sha256 {} over some of its rows",
        "rows": "a table of {} rows",
        "lo": "rows from {} on",
        "hi": "rows up to {}",
        "inode": "inode {}",
        "size": "{} bytes",
        "mtime_ns": "changed at {}",
        "ctime_ns": "ctime {}",
    }
    return ", ".join(words[key].format(_value(key, identity.get(key))) for key in keys)


def _value(key: str, value: object) -> str:
    if value in ("", None):
        return "not known"
    return moment(value) if key in {"mtime_ns", "ctime_ns"} and isinstance(value, int) else str(value)
