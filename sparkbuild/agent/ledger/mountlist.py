"""The mount manifest of an export, `<dst>/.sparkbuild/mounts.json`: what the folder holds, and what a launch mounts.

Format (JSON): {"format": "sparkbuild-export", "version": 1, "key": 64 hex, "parts": {}, "at": unix seconds, "kind":
"tree" | "composed", "commit", "target", "source": the hub cache that files are bound from ("": none), "sources":
[{"folder": of a staged folder, "ledger": the stamp of its ledger's file}], "files": [{"name", "of": the staged file it
is a hard link of, "dev", "ino"}], "pointers": [{"name", "text"}] symbolic links, "empty": [names of files that
something is bound onto], "mounts": [{"source", "target", "read_only"}], the export itself first}. Written last: with
it, the export is whole.

`names.json` beside it lists what may be ours while the folder is being changed and has no manifest.
"""

from __future__ import annotations

import json
import time
from typing import Any

from sparkbuild.agent.disk.files import dump
from sparkbuild.agent.disk.held import Held, is_path
from sparkbuild.agent.ledger.ledger import OURS, LedgerError, safe_name, small_file

FORMAT, VERSION = "sparkbuild-export", 1
_NAME, _DRAFT = f"{OURS}/mounts.json", f"{OURS}/names.json"
_TEXTS = {"mounts": ("source", "target"), "files": ("name", "of"), "pointers": ("name", "text"), "sources": ("folder",)}
_LISTS = ("sources", "files", "pointers", "empty", "mounts")


def path_of(dst: str) -> str:
    """Where the manifest of an export is."""
    return f"{dst}/{_NAME}"


def read(dst: str) -> dict[str, Any] | None:
    """The manifest, None when there is none. Raises LedgerError when it is damaged, or of another version."""
    data = small_file(path_of(dst))
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["format"] != FORMAT or value["version"] != VERSION:
            raise LedgerError(f"it has version {value['version']!r}, this sparkbuild reads version {VERSION}")
        _check(value)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, LedgerError):
            raise
        raise LedgerError("it is cut short or damaged") from error
    return dict(value)


def _check(value: dict[str, Any]) -> None:
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


def names(manifest: dict[str, Any]) -> list[str]:
    """Every name in the folder that is ours."""
    return [*(one["name"] for key in ("files", "pointers") for one in manifest[key]), *manifest["empty"]]


def same(one: dict[str, Any] | None, other: dict[str, Any]) -> bool:
    """Do two manifests say the same? When it was written says nothing."""
    return one is not None and {**one, "at": 0} == {**json.loads(json.dumps(other)), "at": 0}


def write(dst: str, manifest: dict[str, Any]) -> None:
    """Put the manifest in place, on the disk when this returns."""
    value = {"format": FORMAT, "version": VERSION, **manifest, "at": round(time.time(), 3)}
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
        found = json.loads(small_file(_draft(dst)) or b"{}").get("names", [])
    except (ValueError, AttributeError, RecursionError):
        return []
    return [name for name in found if safe_name(name)] if isinstance(found, list) else []


def forget(dst: str) -> None:
    """All is finished: the note is not needed any more."""
    with Held(dst) as held:
        held.unlink(_DRAFT)


def _draft(dst: str) -> str:
    return f"{dst}/{_DRAFT}"
