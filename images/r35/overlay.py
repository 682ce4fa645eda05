"""Put the Python package of a release over the installed one: its files replace what was there, compiled ones stay."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

MARKERS = Path("/opt/release/markers")


def home(package: str) -> Path:
    """Where a package is installed; it is not imported, since that may want a GPU."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{package} is not installed in the base")
    return Path(next(iter(found.submodule_search_locations)))


def overlay(source: Path, package: str, version: str) -> None:
    """Replace all but compiled files, and leave a marker."""
    target = home(package)
    for old in [path for path in target.rglob("*") if path.is_file() and path.suffix != ".so"]:
        old.unlink()
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.suffix != ".so":
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
    MARKERS.mkdir(parents=True, exist_ok=True)
    (MARKERS / package).write_text(f"{target}\n{version}\n", encoding="utf-8")


def main() -> None:
    """`overlay.py SOURCE PACKAGE VERSION`, or `overlay.py --check PACKAGE...`."""
    if sys.argv[1] == "--check":
        right = [name for name in sys.argv[2:] if (MARKERS / name).exists() and home(name).is_dir()]
        print(f"{len(right)} packages as released")
        return
    overlay(Path(sys.argv[1]), sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    main()
