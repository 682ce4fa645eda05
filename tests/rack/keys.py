"""The ssh keys of a rack: one pair to log in with, a host key per node, and the client's files that go with them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from tests.rack.proc import call

SSHD = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
SetEnv PATH={path}
Subsystem sftp internal-sftp
"""


def make(path: Path, comment: str) -> None:
    """A new key pair at `path` and `path`.pub, in place of one that is there."""
    for old in (path, path.with_name(f"{path.name}.pub")):
        old.unlink(missing_ok=True)
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def public(path: Path) -> str:
    """`ssh-ed25519 AAAA...`, without the comment."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text(encoding="utf-8").split()[:2])


def fingerprint(key: str) -> str:
    """What ssh shows of a public key: `SHA256:...`."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def known_hosts(hosts: Sequence[tuple[str, str, str]]) -> str:
    """The client's file, from name, address and public key of each host."""
    return "".join(f"{name},{address} {key}\n" for name, address, key in hosts)


def client_config(key: str, known: str, hosts: Sequence[tuple[str, str, str]]) -> str:
    """An ssh_config that knows nothing but these hosts, and asks nobody: no agent, no password, no unknown host key."""
    each = "".join(f"Host {name}\n    HostName {address}\n" for name, address, _ in hosts)
    return f"""{each}Host *
    User root
    IdentityFile {key}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {known}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    BatchMode yes
    ConnectTimeout 5
"""
