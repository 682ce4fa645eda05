"""The first process of a node: builds the node's file system, starts its services, and becomes tini.

Runs as pid 1 in fresh namespaces, still with the machine's files in view; standard library only, as a script:

    python machine.py BOOT.json

What a node shares with the machine: the kernel, /usr (read-only), /etc (its changes are its own), the Pythons. A node
with another docker engine, or that is arm64, has /usr and /etc of another system. All else is its own and starts empty,
so that a file found on a node was put there.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

RDONLY, REMOUNT, BIND, REC, PRIVATE, DETACH = 1, 32, 4096, 16384, 1 << 18, 2
OWN = ("root", "home", "srv", "mnt", "media", "opt", "tmp", "var/tmp", "var/log", "var/lib/docker", "var/cache",
       "run", "proc", "sys", "dev")  # fmt: skip
LIBRARIES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr, or on older systems folders
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    if not target.exists():
        target.mkdir(parents=True)
    texts = [os.fsencode(text) or None for text in (source, target, kind)]
    if _libc.mount(*texts, ctypes.c_ulong(flags), os.fsencode(options) or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or source}: {os.strerror(number)}", str(target))


def share(path: str, root: Path, system: Path = Path("/")) -> None:
    """Show a folder of a system (the machine, if not told otherwise) at the same place of the node, read-only."""
    inside = path.lstrip("/")
    mount(str(system / inside), root / inside, flags=BIND | REC)
    mount("", root / inside, flags=BIND | REMOUNT | RDONLY)


def lay_out(root: Path, etc: Path, system: Path, files: dict[str, tuple[int, str]]) -> None:
    """Make what a disk needs to be a root. Files of /etc go to the overlay's upper layer, before it is mounted."""
    for folder in (*(root / name for name in OWN), etc / "upper", etc / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "root").chmod(0o700)
    links = {name: os.readlink(system / name) for name in LIBRARIES if os.path.islink(system / name)}
    for name, to in {**links, "var/run": "/run", "var/lock": "/run/lock"}.items():
        if not (root / name).is_symlink():
            (root / name).symlink_to(to)
    for path, (mode, text) in files.items():
        inside = path.lstrip("/")
        place = etc / "upper" / inside.removeprefix("etc/") if inside.startswith("etc/") else root / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)


def mount_all(root: Path, etc: Path, system: Path, shared: list[str]) -> None:
    mount(str(root), root, flags=BIND)  # pivot_root wants a mount
    libraries = [f"/{name}" for name in LIBRARIES if (system / name).is_dir() and not (system / name).is_symlink()]
    for path in ("/usr", *libraries):
        share(path, root, system)
    for path in shared:
        share(path, root)
    layers = f"lowerdir={system / 'etc'},upperdir={etc / 'upper'},workdir={etc / 'work'}"
    mount("overlay", root / "etc", "overlay", options=layers)
    mount("proc", root / "proc", "proc")
    mount("sysfs", root / "sys", "sysfs")  # new, so that /sys/class/net is this node's
    mount("/sys/fs/cgroup", root / "sys/fs/cgroup", flags=BIND | REC)
    mount("/dev", root / "dev", flags=BIND | REC)
    mount("devpts", root / "dev/pts", "devpts", options="mode=620,ptmxmode=666,gid=5")
    mount("tmpfs", root / "dev/shm", "tmpfs", options="mode=1777")
    mount("tmpfs", root / "run", "tmpfs", options="mode=755")
    for name in ("run/sshd", "run/lock"):
        (root / name).mkdir()
    # One kernel, but every boot of every node is to have an id of its own, as programs expect it.
    (root / "run/boot_id").write_text(f"{uuid.uuid4()}\n")
    mount(str(root / "run/boot_id"), root / "proc/sys/kernel/random/boot_id", flags=BIND)


def main(path: str) -> None:
    boot: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    disk = Path(boot["disk"])
    mount("none", Path("/"), flags=REC | PRIVATE)  # nothing of what follows may show on the machine
    if boot["image"]:
        subprocess.run(["mount", "-o", "loop", boot["image"], disk], check=True)
    root, etc, system = disk / "root", disk / "etc", Path(boot["system"])
    lay_out(root, etc, system, boot["files"])
    mount_all(root, etc, system, boot["share"])
    for command in boot["before"]:  # by the machine's programs, which are in view until now
        subprocess.run(command, cwd=root, check=True, stdin=subprocess.DEVNULL)
    name = os.fsencode(boot["name"])
    _libc.sethostname(name, len(name))
    os.chdir(root)
    if _libc.pivot_root(b".", b".") or _libc.umount2(b".", DETACH):
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/root")
    os.environ.clear()
    os.environ.update(boot["env"])
    for service in boot["services"]:
        subprocess.run(service, check=True, stdin=subprocess.DEVNULL)
    # tini buries the orphans that services and killed containers leave.
    os.execv("/usr/bin/tini", ["tini", "--", "sleep", "infinity"])


if __name__ == "__main__":
    main(sys.argv[1])
