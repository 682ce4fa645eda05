"""Nodes as strict administrators leave them: few sessions, login shells of their own mind, a firewall."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.rack.node import Node
from tests.rack.proc import wait_for

CONFIG = "/etc/ssh/sshd_config"


@contextmanager
def sshd(node: Node, *lines: str) -> Iterator[None]:
    """Its sshd with these lines in front of its configuration: the first that is said counts."""
    path = node.path(CONFIG)
    before = path.read_text()
    path.write_text("".join(f"{line}\n" for line in lines) + before)
    _reload(node)
    try:
        yield
    finally:
        path.write_text(before)
        _reload(node)


@contextmanager
def firewall(node: Node, port: int = 22, *, reject: bool = False) -> Iterator[None]:
    """Connections of the operator's machine reach this port and no other; those of nodes do."""
    how = ["-j", "REJECT", "--reject-with", "tcp-reset"] if reject else ["-j", "DROP"]
    words = subprocess.run(["ip", "-o", "route", "get", node.address], capture_output=True, text=True, check=True)
    source = words.stdout.partition(" src ")[2].split()[0]
    rule = ["INPUT", "-s", source, "-p", "tcp", "--syn", "!", "--dport", str(port), *how]
    node.run(["iptables", "-I", *rule], check=True)
    try:
        yield
    finally:
        node.run(["iptables", "-D", *rule], check=True)


def login_shell(node: Node, user: str, program: str) -> None:
    """A user whose login shell does what the program, a shell's, says before it runs a command."""
    node.add_user(user)
    path = f"/home/{user}/shell"
    node.path(path).write_text(f'#!/bin/sh\n{program}\nexec /bin/sh "$@"\n')
    node.path(path).chmod(0o755)
    node.run(["usermod", "-s", path, user], check=True)


def _reload(node: Node) -> None:
    pid = node.run(["cat", "/run/sshd.pid"], check=True).out.strip()
    node.run(["kill", "-HUP", pid], check=True)
    wait_for(f"sshd of {node.name} has read its configuration", lambda: "SSH-" in _banner(node))


def _banner(node: Node) -> str:
    script = "exec 3<>/dev/tcp/127.0.0.1/22 && head -c 4 <&3"
    return node.run(["timeout", "2", "bash", "-c", script]).out
