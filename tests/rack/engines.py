"""The docker engines that a rack's nodes can have: this machine's own, and a newer Debian's with each image store.

A newer engine is a Debian root of its own, of which nodes show /usr and /etc in place of the machine's. It is fetched
once, by `python3 -m tests.rack engines`, and kept outside of the repository; tests need no network. What could not be
fetched is "not tried": its tests are skipped with the reason. Standard library only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.rack import systems
from tests.rack.proc import RackError
from tests.rack.systems import System

PACKAGES = (
    "docker.io", "docker-cli", "docker-buildx", "containerd", "tini", "openssh-server", "openssh-client", "iproute2",
    "iptables", "iputils-ping", "python3", "git", "ca-certificates", "zstd", "busybox-static", "fuse3", "e2fsprogs",
    "util-linux", "procps", "libgomp1",
)  # fmt: skip
SHOWN = ("docker.io", "containerd", "docker-buildx")
SYSTEM = System("debian", "engines", ("sid", "trixie"), PACKAGES, SHOWN)  # docker.io 28, 26
VARIABLE = "SPARKBUILD_RACK_ENGINE"


@dataclass(frozen=True)
class Kind:
    """One engine: `system` is the fetched one that it lives in (None: this machine), `settings` is daemon.json."""

    system: System | None
    settings: str


KINDS = {
    "20": Kind(None, "{}"),
    "28": Kind(SYSTEM, '{"features": {"containerd-snapshotter": false}}'),
    "28-containerd": Kind(SYSTEM, '{"features": {"containerd-snapshotter": true}}'),
}
DEFAULT = "20"


def chosen(name: str | None = None) -> str:
    """The engine that is meant: `name`, else the environment's, else this machine's. RackError for an unknown one."""
    wanted = name or os.environ.get(VARIABLE) or DEFAULT
    if wanted not in KINDS:
        raise RackError(f"no engine {wanted!r}: there are {', '.join(KINDS)}")
    return wanted


def root(name: str) -> Path:
    """The system whose /usr and /etc the nodes of an engine show; RackError when it was not fetched."""
    system = KINDS[chosen(name)].system
    if system is None:
        return Path("/")
    if problem := lacking(name):
        raise RackError(problem)
    return system.root


def lacking(name: str | None = None) -> str:
    """Why an engine cannot be tried here, in one line; empty when it can."""
    system = KINDS[chosen(name)].system
    reason = system.lacking() if system else ""
    return f"engine {chosen(name)} is not tried: {reason}" if reason else ""


def versions(name: str) -> str:
    """What an engine is made of, for people: `docker.io 28.5.2+dfsg4-1, containerd 2.1.9~ds1-1 (Debian sid)`."""
    system = KINDS[chosen(name)].system
    release, packages = "this machine's", systems.versions(Path("/"), SHOWN)
    if system:
        stamp = system.stamp()
        if stamp is None:
            return lacking(name)
        release, packages = f"Debian {stamp.release}", stamp.packages
    return ", ".join(f"{package} {packages.get(package, 'none')}" for package in SHOWN) + f" ({release})"


def fetch() -> str:
    """Fetch what is missing; returns why it could not be, or ""."""
    return SYSTEM.fetch()
