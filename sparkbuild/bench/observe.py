"""Which run packages are there: read from the workspace, where they live, on the operator's machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypedDict

from sparkbuild.bench.manifest import NAME, Manifest, Parts, decode

INCOMPLETE = "_incomplete"
PART = ".part"

_STAMP = re.compile(r"^\d{4}-\d{2}-\d{2}_\d{6}_")


class Judged(TypedDict, total=False):
    """What a run package says of itself; of one that cannot be read, `broken` says why, and nothing else is known."""

    broken: str
    complete: bool
    incomplete_because: list[str]
    key: str
    parts: Parts
    lane: Parts
    started: str
    finished: str


class _Named(TypedDict):
    name: str
    path: str


class Report(_Named, Judged):
    """A run package; `path` is relative to the workspace."""


class Reports(TypedDict, total=False):
    """A report goal's fact: the packages of its recipe under its label, oldest first."""

    reports: list[Report]


def reports_folder(root: Path | str, recipe: str) -> Path:
    """Where a recipe's run packages are."""
    return Path(root) / "recipes" / recipe / "reports"


def observe_reports(root: Path | str, recipe: str, label: str) -> Reports:
    """The packages of a recipe under a label."""
    folder = reports_folder(root, recipe)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {"reports": []}
    reports: list[Report] = []
    for name in names:
        if _STAMP.match(name) and _STAMP.sub("", name).removesuffix(INCOMPLETE) == label:
            path = f"recipes/{recipe}/reports/{name}"
            reports.append({"name": name, "path": path, **_look(folder / name)})
    return {"reports": reports}


def _look(package: Path) -> Judged:
    try:
        manifest = decode((package / NAME).read_bytes())
    except OSError as error:
        return {"broken": f"{NAME}: {error.strerror}"}
    except ValueError as error:  # msgspec's errors are ValueErrors too
        return {"broken": f"{NAME}: {error}"}
    because = _incomplete_because(package, manifest)
    return {
        "key": manifest.key,
        "parts": manifest.parts,
        "lane": manifest.lane,
        "started": manifest.started,
        "finished": manifest.finished,
        "complete": manifest.complete and not because,
        "incomplete_because": because,
    }


def _incomplete_because(package: Path, manifest: Manifest) -> list[str]:
    """It is complete only when the manifest, the name and the files agree on it."""
    because = list(manifest.incomplete_because)
    if package.name.endswith(INCOMPLETE) and manifest.complete:
        because.append("the folder is marked as incomplete")
    gone = [name for name in manifest.files if not (package / name).is_file()]
    if gone:
        because.append(f"no longer in the package: {', '.join(gone)}")
    return because
