"""Debian roots of other releases and machines, fetched once by debootstrap and kept outside of the repository.

What could not be fetched is "not tried": its tests are skipped with the reason. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"


def cache() -> Path:
    """Where fetched systems are kept."""
    return Path(os.environ.get("SPARKBUILD_RACK_SYSTEMS") or "/var/cache/sparkbuild-rack")


@dataclass(frozen=True)
class Stamp:
    """What lies beside a whole system: what it was made of, its release, and the versions that are shown of it."""

    wanted: str
    release: str
    packages: dict[str, str]


@dataclass(frozen=True)
class System:
    """A Debian root. The first of its releases that can be had is taken; versions of `shown` packages are for people.

    `command` is the word of `python3 -m tests.rack` that fetches it. `options` and `prefix` go to and before
    debootstrap; it may take `limit` seconds.
    """

    name: str
    command: str
    releases: tuple[str, ...]
    packages: tuple[str, ...]
    shown: tuple[str, ...]
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    limit: int = 900

    @property
    def place(self) -> Path:
        return cache() / self.name

    @property
    def root(self) -> Path:
        """Its root folder, once it is there."""
        return self.place / "root"

    def lacking(self) -> str:
        """Why it is not here, in one line; empty when it is."""
        if self.stamp():
            return ""
        try:
            return self._reason_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return f"it was not fetched yet: python3 -m tests.rack {self.command}"

    def fetch(self) -> str:
        """Fetch it if it is not here; returns why it could not be, or "". Others that fetch now are waited for."""
        cache().mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(cache() / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.stamp():
                return ""
            reasons = [reason for release in self.releases if (reason := self._make(release)) is not None]
            if len(reasons) == len(self.releases):
                self.not_to_be_had("; ".join(reasons))
                return "; ".join(reasons)
            self._reason_file.unlink(missing_ok=True)
            return ""

    def not_to_be_had(self, reason: str) -> None:
        """Keep why it cannot be fetched, for those who look for it later."""
        cache().mkdir(mode=0o755, parents=True, exist_ok=True)
        self._reason_file.write_text(reason + "\n", encoding="utf-8")

    def stamp(self) -> Stamp | None:
        """The stamp of a whole system; None when there is none, or when it was made of other packages."""
        try:
            stamp = Stamp(**json.loads((self.place / "stamp.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        return stamp if stamp.wanted == self._wanted() else None

    @property
    def _reason_file(self) -> Path:
        return cache() / f"{self.name}.reason"

    def _wanted(self) -> str:
        """What decides a system, for its stamp: with another list of packages it is fetched anew."""
        return hashlib.sha256(" ".join(self.packages).encode()).hexdigest()[:16]

    def _make(self, release: str) -> str | None:
        """Make the system of a release, unless one is there by now; returns why that failed."""
        if self.stamp():
            return None
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            return "root and debootstrap are needed (apt-get install debootstrap)"
        part = self.place.with_name(f"{self.name}.part")
        for old in (part, self.place):
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir()
        command = [*self.prefix, "debootstrap", "--variant=minbase", f"--include={','.join(self.packages)}"]
        # Releases since 2012 are set up by the same script, but debootstrap knows only names that were there before it.
        script = ["/usr/share/debootstrap/scripts/sid"] if Path("/usr/share/debootstrap/scripts/sid").exists() else []
        log = self.place.with_name(f"{self.name}.log")
        try:
            with open(log, "wb") as out:
                code = subprocess.run(
                    [*command, *self.options, release, str(part / "root"), MIRROR, *script],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, timeout=self.limit,
                ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            shutil.rmtree(part, ignore_errors=True)
            return f"debootstrap of {release} was not ready after {self.limit} s (what it did: {log})"
        if code:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            shutil.rmtree(part, ignore_errors=True)
            return f"debootstrap of {release} failed: {' '.join(last) or f'exit code {code}'} (all of it: {log})"
        shutil.rmtree(part / "root/var/cache/apt", ignore_errors=True)
        stamp = Stamp(self._wanted(), release, versions(part / "root", self.shown))
        (part / "stamp.json").write_text(json.dumps(asdict(stamp), indent=1), encoding="utf-8")
        part.rename(self.place)
        return None


def versions(root: Path, packages: Sequence[str]) -> dict[str, str]:
    """Versions of packages that are installed in a root, from dpkg's own list."""
    found, package = {}, ""
    try:
        lines = (root / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        if line.startswith("Package: "):
            package = line.partition(" ")[2]
        elif line.startswith("Version: ") and package in packages:
            found[package] = line.partition(" ")[2]
    return found
