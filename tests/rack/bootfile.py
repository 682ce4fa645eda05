"""What a node starts from: the files it finds on its disk, its environment, its services. machine.py reads it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rack import engine, engines, foreign, keys, pythons

if TYPE_CHECKING:
    from tests.rack.node import Node

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # not /usr/local: a node has Debian's programs
ENV = {"PATH": PATH, "HOME": "/root", "USER": "root", "LOGNAME": "root", "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
SECRET, PUBLIC = 0o600, 0o644


def write(node: Node) -> Path:
    """Write the node's boot.json; returns where."""
    services = [["/usr/sbin/sshd"]]
    if node.has_docker:
        services.append(engine.daemon(node.rack, node.name))
    content = {
        "name": node.name,
        "disk": str(node.folder / "disk"),
        "image": str(node.folder / "disk.img") if node.disk_mb else None,
        "system": str(foreign.root() if node.is_arm64 else engines.root(node.engine)),
        "files": _files(node),
        "share": [] if node.is_arm64 else pythons.shared(),
        "before": [foreign.telling("proc")] if node.is_arm64 else [],
        "env": ENV,
        "services": services,
    }
    place = node.folder / "boot.json"
    place.write_text(json.dumps(content), encoding="utf-8")
    place.chmod(SECRET)
    return place


def _files(node: Node) -> dict[str, tuple[int, str]]:
    """Mode and content of each file, by path; written again at each boot."""
    return {
        "/etc/hostname": (PUBLIC, f"{node.name}\n"),
        "/etc/hosts": (PUBLIC, _text(node.rack_folder / "hosts")),
        "/etc/machine-id": (PUBLIC, f"{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node.name}.{node.address}').hex}\n"),
        # Without a server, names are asked of the node itself, which refuses at once instead of after a time limit.
        "/etc/resolv.conf": (PUBLIC, ""),
        "/etc/docker/daemon.json": (PUBLIC, engines.KINDS[node.engine].settings),
        "/etc/ssh/sshd_config": (PUBLIC, keys.SSHD.format(path=PATH)),
        "/etc/ssh/ssh_host_ed25519_key": (SECRET, _text(node.folder / "host_key")),
        "/etc/ssh/ssh_host_ed25519_key.pub": (PUBLIC, f"{node.host_key}\n"),
        "/root/.ssh/authorized_keys": (SECRET, f"{keys.public(node.key_file)}\n"),
        "/root/.ssh/id_ed25519": (SECRET, _text(node.key_file)),
        "/root/.ssh/known_hosts": (SECRET, _text(node.rack_folder / "known_hosts")),
        "/root/.ssh/config": (SECRET, keys.client_config("/root/.ssh/id_ed25519", "/root/.ssh/known_hosts", [])),
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
