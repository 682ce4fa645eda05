"""The docker engines that a rack's nodes can have: this machine's own, and a newer Debian's with each image store.

A newer engine is a Debian root of its own, of which nodes show /usr and /etc in place of the machine's. It is fetched
once, by `python3 -m tests.rack engines`, and kept outside of the repository; tests need no network. What could not be
fetched is "not tried": its tests are skipped with the reason. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.rack.proc import RackError

RELEASES = ("sid", "trixie")  # docker.io 28 and 26; the first that can be had is taken
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "docker.io", "docker-cli", "docker-buildx", "containerd", "tini", "openssh-server", "openssh-client", "iproute2",
    "iptables", "iputils-ping", "python3", "git", "ca-certificates", "zstd", "busybox-static", "fuse3", "e2fsprogs",
    "util-linux", "procps", "libgomp1",
)  # fmt: skip
SHOWN = ("docker.io", "containerd", "docker-buildx")
VARIABLE = "SPARKBUILD_RACK_ENGINE"


@dataclass(frozen=True)
class Kind:
    """One engine: `root` names the fetched system it lives in ("" is this machine's), `settings` is daemon.json."""

    root: str
    settings: str


KINDS = {
    "20": Kind("", "{}"),
    "28": Kind("debian", '{"features": {"containerd-snapshotter": false}}'),
    "28-containerd": Kind("debian", '{"features": {"containerd-snapshotter": true}}'),
}
DEFAULT = "20"


def chosen(name: str | None = None) -> str:
    """The engine that is meant: `name`, else the environment's, else this machine's. RackError for an unknown one."""
    wanted = name or os.environ.get(VARIABLE) or DEFAULT
    if wanted not in KINDS:
        raise RackError(f"no engine {wanted!r}: there are {', '.join(KINDS)}")
    return wanted


def cache() -> Path:
    """Where fetched systems are kept."""
    return Path(os.environ.get("SPARKBUILD_RACK_SYSTEMS") or "/var/cache/sparkbuild-rack")


def root(name: str) -> Path:
    """The system whose /usr and /etc the nodes of an engine show; RackError when it was not fetched."""
    kind = KINDS[chosen(name)]
    if not kind.root:
        return Path("/")
    if problem := lacking(name):
        raise RackError(problem)
    return cache() / kind.root / "root"


def lacking(name: str | None = None) -> str:
    """Why an engine cannot be tried here, in one line; empty when it can."""
    kind = KINDS[chosen(name)]
    if not kind.root or _stamp(cache() / kind.root):
        return ""
    try:
        reason = (cache() / f"{kind.root}.reason").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        reason = "it was not fetched yet: python3 -m tests.rack engines"
    return f"engine {chosen(name)} is not tried: {reason}"


def versions(name: str) -> str:
    """What an engine is made of, for people: `docker.io 28.5.2+dfsg4-1, containerd 2.1.9~ds1-1 (Debian sid)`."""
    kind = KINDS[chosen(name)]
    release, packages = "this machine's", _packages(Path("/"))
    if kind.root:
        stamp = _stamp(cache() / kind.root)
        if stamp is None:
            return lacking(name)
        release, packages = f"Debian {stamp.release}", stamp.packages
    return ", ".join(f"{package} {packages.get(package, 'none')}" for package in SHOWN) + f" ({release})"


def fetch() -> str:
    """Fetch what is missing; returns why it could not be, or "". Others that fetch at the same time are waited for."""
    cache().mkdir(mode=0o755, parents=True, exist_ok=True)
    place = cache() / "debian"
    with open(cache() / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _stamp(place):
            return ""
        reasons = [reason for release in RELEASES if (reason := _make(place, release)) is not None]
        reason_file = cache() / "debian.reason"
        if len(reasons) == len(RELEASES):
            reason_file.write_text("; ".join(reasons) + "\n", encoding="utf-8")
            return "; ".join(reasons)
        reason_file.unlink(missing_ok=True)
        return ""


def _make(place: Path, release: str) -> str | None:
    """Make the system of a release at `place`, unless one is there by now; returns why that failed."""
    if _stamp(place):
        return None
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return "root and debootstrap are needed (apt-get install debootstrap)"
    part = place.with_name(f"{place.name}.part")
    for old in (part, place):
        shutil.rmtree(old, ignore_errors=True)
    part.mkdir()
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    # Every release since 2012 is set up by the same script, but debootstrap knows only names that were there before it.
    script = ["/usr/share/debootstrap/scripts/sid"] if Path("/usr/share/debootstrap/scripts/sid").exists() else []
    log = place.with_name(f"{place.name}.log")
    with open(log, "wb") as out:
        code = subprocess.run(
            [*command, release, str(part / "root"), MIRROR, *script],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, timeout=900,
        ).returncode  # fmt: skip
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        shutil.rmtree(part, ignore_errors=True)
        return f"debootstrap of {release} failed: {' '.join(last) or f'exit code {code}'} (all of it: {log})"
    shutil.rmtree(part / "root/var/cache/apt", ignore_errors=True)
    stamp = _Stamp(_wanted(), release, _packages(part / "root"))
    (part / "stamp.json").write_text(json.dumps(asdict(stamp), indent=1), encoding="utf-8")
    part.rename(place)
    return None


def _wanted() -> str:
    """What decides a system, for its stamp: with another list of packages it is fetched anew."""
    return hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Stamp:
    """What lies beside a whole system: its release, and the versions of the packages that are shown."""

    wanted: str
    release: str
    packages: dict[str, str]


def _stamp(place: Path) -> _Stamp | None:
    """The stamp of a whole system; None when there is none, or when it was made of other packages."""
    try:
        stamp = _Stamp(**json.loads((place / "stamp.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    return stamp if stamp.wanted == _wanted() else None


def _packages(system: Path) -> dict[str, str]:
    """Versions of the packages that are shown, from dpkg's own list."""
    found, package = {}, ""
    try:
        lines = (system / "var/lib/dpkg/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        if line.startswith("Package: "):
            package = line.partition(" ")[2]
        elif line.startswith("Version: ") and package in SHOWN:
            found[package] = line.partition(" ")[2]
    return found
