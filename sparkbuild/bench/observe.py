"""Which run packages are there: read from the workspace, where they live, on the operator's machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sparkbuild.bench.manifest import NAME, Manifest, decode

INCOMPLETE = "_incomplete"
PART = ".part"

_STAMP = re.compile(r"^\d{4}-\d{2}-\d{2}_\d{6}_")


def reports_folder(root: Path | str, recipe: str) -> Path:
    """Where a recipe's run packages are."""
    return Path(root) / "recipes" / recipe / "reports"


def observe_reports(root: Path | str, recipe: str, label: str) -> dict[str, Any]:
    """The packages of a recipe under a label, oldest first, as a fact for `judge`: {"reports": [{...}]}.

    A report has `name`, `path` (relative to the workspace) and either `broken` (why it cannot be read) or `complete`,
    `incomplete_because`, `key`, `parts`, `lane` (the lane's key parts), `started`, `finished`.
    """
    folder = reports_folder(root, recipe)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {"reports": []}
    found = []
    for name in names:
        if _STAMP.match(name) and _STAMP.sub("", name).removesuffix(INCOMPLETE) == label:
            path = f"recipes/{recipe}/reports/{name}"
            found.append({"name": name, "path": path, **_look(folder / name)})
    return {"reports": found}


def _look(package: Path) -> dict[str, Any]:
    try:
        manifest = decode((package / NAME).read_bytes())
    except OSError as error:
        return {"broken": f"{NAME}: {error.strerror}"}
    except ValueError as error:  # msgspec's errors are ValueErrors too
        return {"broken": f"{NAME}: {error}"}
    return {**_told(manifest), **_trusted(package, manifest)}


def _told(manifest: Manifest) -> dict[str, Any]:
    return {
        "key": manifest.key,
        "parts": manifest.parts,
        "lane": manifest.lane,
        "started": manifest.started,
        "finished": manifest.finished,
    }


def _trusted(package: Path, manifest: Manifest) -> dict[str, Any]:
    """Complete only when the manifest, the name and the files agree on it."""
    because = list(manifest.incomplete_because)
    if package.name.endswith(INCOMPLETE) and manifest.complete:
        because.append("the folder is marked as incomplete")
    gone = [name for name in manifest.files if not (package / name).is_file()]
    if gone:
        because.append(f"no longer in the package: {', '.join(gone)}")
    return {"complete": manifest.complete and not because, "incomplete_because": because}
