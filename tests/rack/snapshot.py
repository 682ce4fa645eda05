"""What a rack could leave on the machine: links, namespaces, mounts, loop devices, cgroups, folders."""

from __future__ import annotations

import glob
import json
from pathlib import Path

from tests.rack.leftovers import CGROUPS
from tests.rack.proc import call
from tests.rack.rack import Rack, home


def taken() -> set[str]:
    """One line each, as the system's own tools tell it."""
    links = json.loads(call(["ip", "-json", "link"]).out)
    return {
        *(f"link {link['ifname']}" for link in links),
        *(f"netns {line}" for line in call(["ip", "netns"]).out.splitlines()),
        *(f"mount {line}" for line in call(["mount"]).out.splitlines()),
        *(
            f"loop {line}"
            for line in call(["losetup", "--list", "--noheadings", "-O", "NAME,BACK-FILE"]).out.splitlines()
        ),
        *(f"cgroup {path}" for top in ("*/", "") for path in glob.glob(f"/sys/fs/cgroup/{top}{CGROUPS}/*")),
        *(f"folder {path}" for path in home().glob("[0-9]*")),
    }


def spaces(rack: Rack) -> set[str]:
    """The namespaces that a rack's processes are in: pid, mount and network, of the keeper and of each node."""
    pids = [rack.keeper.pid, *(node.pid for node in rack.nodes)]
    return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for pid in pids for kind in ("pid", "net")}


def inhabited(wanted: set[str]) -> list[str]:
    """Commands of processes that are in one of those namespaces."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted & {str((place / "ns" / kind).readlink()) for kind in ("pid", "net")}:
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it ended meanwhile
    return found
