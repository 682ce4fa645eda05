"""The mount manifest of an export, `<dst>/.sparkbuild/mounts.json`: what the folder holds, and what a launch mounts.

A JSON object, `Manifest`. Written last: with it, the export is whole.
`names.json` beside it lists what may be ours while the folder is being changed and has no manifest.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, TypedDict

from sparkbuild.agent.disk.files import dump
from sparkbuild.agent.disk.held import Held, is_path
from sparkbuild.agent.ledger.ledger import LedgerError, safe_name, small_file
from sparkbuild.agent.wire.layout import EXPORT as VERSION, MOUNTS_FILE, NAMES_FILE, OURS

if TYPE_CHECKING:
    from sparkbuild.agent.ledger.stamps import Stamp
    from sparkbuild.agent.wire.receipts import Parts
    from sparkbuild.agent.wire.staging.exports import Mount

FORMAT = "sparkbuild-export"
_NAME, _DRAFT = f"{OURS}/{MOUNTS_FILE}", f"{OURS}/{NAMES_FILE}"
_TEXTS = {"mounts": ("source", "target"), "files": ("name", "of"), "pointers": ("name", "text"), "sources": ("folder",)}
_LISTS = ("sources", "files", "pointers", "empty", "mounts")


class SourceFolder(TypedDict):
    """A staged folder that an export is made of, and the stamp of its ledger's file."""

    folder: str
    ledger: Stamp


class HardLink(TypedDict):
    """A name of an export, and the staged file that it is a hard link of."""

    name: str
    of: str
    dev: int
    ino: int


class Pointer(TypedDict):
    """A symbolic link of an export."""

    name: str
    text: str


class Manifest(TypedDict):
    """What an export is: `kind` is "tree" or "composed", `source` the hub cache that files are bound from ("": none),
    `empty` the names of files that something is bound onto, `mounts` the export itself and then these. `at` in unix
    seconds.
    """

    format: str
    version: int
    at: float
    key: str
    parts: Parts
    kind: str
    commit: str
    target: str
    source: str
    sources: list[SourceFolder]
    files: list[HardLink]
    pointers: list[Pointer]
    empty: list[str]
    mounts: list[Mount]


def path_of(dst: str) -> str:
    """Where the manifest of an export is."""
    return f"{dst}/{_NAME}"


def read(dst: str) -> Manifest | None:
    """The manifest, None when there is none. Raises LedgerError when it is damaged, or of another version."""
    data = small_file(path_of(dst))
    if data is None:
        return None
    try:
        value: Manifest = json.loads(data)
        if value["format"] != FORMAT or value["version"] != VERSION:
            raise LedgerError(f"it has version {value['version']!r}, this sparkbuild reads version {VERSION}")
        _check(value)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, LedgerError):
            raise
        raise LedgerError("it is cut short or damaged") from error
    return value


def _check(value: Any) -> None:
    """Raise LedgerError, KeyError or TypeError when it lacks anything that is read of it."""
    if not (isinstance(value["key"], str) and isinstance(value["parts"], dict)):
        raise LedgerError("key or parts are missing")
    if not is_path(value["source"]) or not is_path(value["target"]):
        raise LedgerError("source or target are missing")
    if not all(isinstance(value[name], list) for name in _LISTS) or not all(map(safe_name, names(value))):
        raise LedgerError("its lists are damaged")
    for name, fields in _TEXTS.items():
        if not all(is_path(one[field]) for one in value[name] for field in fields):
            raise LedgerError(f"its {name} are damaged")
    if not isinstance(value["commit"], str) or not all("ledger" in one for one in value["sources"]):
        raise LedgerError("its commit or its sources are damaged")
    if not all(type(one[field]) is int for one in value["files"] for field in ("dev", "ino")):
        raise LedgerError("its files are damaged")


def names(manifest: Manifest) -> list[str]:
    """Every name in the folder that is ours."""
    linked = (*manifest["files"], *manifest["pointers"])
    return [*(link["name"] for link in linked), *manifest["empty"]]


def same(one: Manifest | None, other: Manifest) -> bool:
    """Do two manifests say the same? When it was written says nothing."""
    return one is not None and {**one, "at": 0} == {**json.loads(json.dumps(other)), "at": 0}


def write(dst: str, manifest: Manifest) -> None:
    """Put the manifest in place, on the disk when this returns."""
    value = {**manifest, "at": round(time.time(), 3)}
    with Held(dst) as held:
        held.replace(_NAME, lambda file: dump(value, file))


def withdraw(dst: str, ours: list[str]) -> None:
    """Before anything is changed: note what may be ours, then take the manifest away, on the disk when this returns."""
    with Held(dst) as held:
        held.replace(_DRAFT, lambda file: dump({"names": sorted(ours)}, file))
        if held.unlink(_NAME):
            held.flush(OURS)


def noted(dst: str) -> list[str]:
    """What the last `withdraw` noted, [] when all was finished since."""
    try:
        noted_names = json.loads(small_file(_draft(dst)) or b"{}").get("names", [])
    except (ValueError, AttributeError, RecursionError):
        return []
    return [name for name in noted_names if safe_name(name)] if isinstance(noted_names, list) else []


def forget(dst: str) -> None:
    """All is finished: the note is not needed any more."""
    with Held(dst) as held:
        held.unlink(_DRAFT)


def _draft(dst: str) -> str:
    return f"{dst}/{_DRAFT}"
