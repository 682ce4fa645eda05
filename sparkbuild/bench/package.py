"""A run package while it is made: written beside its final name, which it gets only when all is in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from sparkbuild.bench.manifest import NAME, Manifest, decode, encode
from sparkbuild.bench.observe import INCOMPLETE, PART
from sparkbuild.core import wholefile
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.locks import FolderLock

SCRATCH = "scratch"  # where the harnesses run; not part of the package


class Package:
    """An open package: `<reports>/.<YYYY-MM-DD_HHMMSS>_<label>.part`, locked by whoever fills it."""

    def __init__(self, part: Path, name: str, started: datetime, lock: FolderLock) -> None:
        self.part = part
        self.name = name
        self.started = started
        self._lock = lock

    @property
    def scratch(self) -> Path:
        """The folder the harnesses run in."""
        return self.part / SCRATCH

    def close(self, manifest: Manifest) -> Path:
        """Put the manifest in and give the package its name; `_incomplete` at its end unless it is complete."""
        try:
            shutil.rmtree(self.scratch, ignore_errors=True)
            write_manifest(self.part, msgspec.structs.replace(manifest, files=_hashes(self.part)))
            return _publish(self.part, self.name if manifest.complete else self.name + INCOMPLETE)
        finally:
            self._lock.release()


def start(reports: Path, label: str) -> Package:
    """Open a package with one UTC clock for its name and its manifest."""
    if label.endswith(INCOMPLETE):
        raise ConfigError(f"a label cannot end in {INCOMPLETE}", found=label, wanted="another label")
    reports.mkdir(parents=True, exist_ok=True)
    while True:
        now = datetime.now(timezone.utc)
        name = f"{now:%Y-%m-%d_%H%M%S}_{label}"
        part = reports / f".{name}{PART}"
        try:
            if not (reports / name).exists() and not (reports / (name + INCOMPLETE)).exists():
                part.mkdir()
                break
        except FileExistsError:
            pass
        time.sleep(0.2)  # another one began in this second
    lock = FolderLock(part)
    lock.acquire()
    return Package(part, name, now, lock)


def sweep(reports: Path) -> list[Path]:
    """Name the packages of runs that were killed: what they left becomes `..._incomplete`. Returns their new paths."""
    found = []
    for part in sorted(reports.glob(f".*{PART}")):
        lock = FolderLock(part)
        try:
            if lock.try_acquire():  # else it is still being filled
                shutil.rmtree(part / SCRATCH, ignore_errors=True)
                name = part.name.removeprefix(".").removesuffix(PART) + INCOMPLETE
                _disown(part)
                found.append(_publish(part, name))
        finally:
            lock.release()
    return found


def _disown(part: Path) -> None:
    """A killed run may have died between its last manifest and its name; it must not claim to be complete."""
    try:
        manifest = decode((part / NAME).read_bytes())
    except (OSError, ValueError):
        return  # killed in its first moments; without a manifest it is no report at all
    if manifest.complete:
        because = ("the run was killed before its package had a name",)
        write_manifest(part, msgspec.structs.replace(manifest, complete=False, incomplete_because=because))


def copy_recipe(part: Path, folder: Path, files: Iterable[str]) -> None:
    """Copy recipe.toml and the recipe's files into the package, as they are now."""
    for name in dict.fromkeys(("recipe.toml", *files)):
        target = part / "recipe" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target)


def write_manifest(part: Path, manifest: Manifest) -> None:
    """Write the manifest so that it is whole or not there."""
    wholefile.replace(part / NAME, encode(manifest), ours=False)


def size(package: Path) -> int:
    """Bytes in all files of a package."""
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


def _hashes(part: Path) -> dict[str, str]:
    paths = sorted(path for path in part.rglob("*") if path.is_file() and path != part / NAME)
    return {str(path.relative_to(part)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _publish(part: Path, name: str) -> Path:
    """Flush the package's files to the disk, then rename it."""
    for path in (*part.rglob("*"), part):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    final = part.with_name(name)
    part.rename(final)
    fd = os.open(part.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return final
