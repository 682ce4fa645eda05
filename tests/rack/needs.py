"""What the rack needs of the machine, and which Debian packages bring what is missing. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = Path(__file__).with_name("packages.txt")
LONG = Path(__file__).with_name("packages-long.txt")
# sshd and dockerd are not on a user's PATH everywhere
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])


def missing_packages(*, long: bool = False) -> dict[str, list[str]]:
    """Packages to install, each with the programs that are not here. `long`: also what only long tests need."""
    wanted: dict[str, list[str]] = {}
    lists = (PACKAGES, LONG) if long else (PACKAGES,)
    for line in "".join(path.read_text(encoding="utf-8") for path in lists).splitlines():
        if line and not line.startswith("#"):
            package, *programs = line.split()
            if absent := [program for program in programs if not shutil.which(program, path=SEARCHED)]:
                wanted[package] = absent
    # Debian 12 and Ubuntu have the client in docker.io; from Debian 13 on it is a package of its own.
    if "docker-cli" in wanted and not _known_to_apt("docker-cli"):
        wanted.setdefault("docker.io", []).extend(wanted.pop("docker-cli"))
    return wanted


def _known_to_apt(package: str) -> bool:
    if not shutil.which("apt-cache"):
        return True
    shown = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False)
    return "Candidate:" in shown.stdout and "Candidate: (none)" not in shown.stdout


def lacking() -> str:
    """Why no rack can be here, in one line with what to do; empty when one can."""
    if os.geteuid() != 0:
        return "a rack needs root: its nodes are namespaces with mounts and links of their own"
    if packages := missing_packages():
        programs = ", ".join(name for names in packages.values() for name in names)
        return f"a rack needs {programs}: apt-get install {' '.join(packages)}"
    probe = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if probe.returncode:
        return f"no namespaces can be made here: {probe.stderr.decode(errors='replace').strip()}"
    return ""


def lacking_nas() -> str:
    """Why no NAS can be mounted here, the rack apart; empty when one can."""
    return "" if os.path.exists("/dev/fuse") else "a NAS needs FUSE in the kernel: there is no /dev/fuse"
