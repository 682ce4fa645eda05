"""Cross-checks of one node of config.toml: what its fields mean together, beyond the type of each."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import re

import msgspec

from sparkbuild.workspace.shapes.schema import Node
from sparkbuild.workspace.toml.findings import Findings

LOCAL = "local"  # the embedded node: this machine
_OURS = frozenset({"images", "recipes", "locks"})  # what the user writes; a store is cleaned by us
_OF_SSH = ("user", "port", "key", "jump", "host_key", "python", "offline")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}=?")


def check(findings: Findings, name: str, node: Node) -> None:
    """Note what is wrong with the node `name`."""
    _store(findings, name, node)
    if not node.docker.startswith("/"):
        findings.add(
            ("nodes", name, "docker"),
            f"`docker` of node `{name}` is no absolute path",
            found=repr(node.docker),
            wanted='the path of the engine\'s socket: "/var/run/docker.sock"',
        )
    if node.connection == "ssh":
        _ssh(findings, name, node)
        return
    _address(findings, name, node.address)
    defaults = Node()
    for field in msgspec.structs.fields(Node):
        if field.name in _OF_SSH and getattr(node, field.name) != getattr(defaults, field.name):
            findings.add(
                ("nodes", name, field.name),
                f"`{field.name}` says nothing about this machine",
                wanted=f'connection = "ssh" for node `{name}`, or no `{field.name}`',
            )


def check_fabric(findings: Findings, cluster: str, fabric: str) -> None:
    """Note a `fabric` that is no network: while nodes are away, nobody else would see it."""
    if not fabric:
        return
    try:
        ipaddress.IPv4Network(fabric)
    except ValueError as error:
        what = f"`fabric` of cluster `{cluster}` is no network"
        findings.add(("clusters", cluster, "fabric"), what, found=str(error), wanted='fabric = "10.0.1.0/24"')


def _store(findings: Findings, name: str, node: Node) -> None:
    place = os.path.normpath(node.store) if node.store else ""
    at = ("nodes", name, "store")
    if node.connection == "ssh" and node.store == Node().store:
        findings.add(
            ("nodes", name),
            f"node `{name}` has no store",
            wanted='an absolute path on that machine, on a disk with room: store = "/srv/sparkbuild"',
        )
    elif node.connection == "ssh" and not place.startswith("/") and place:
        findings.add(
            at,
            f"the store of node `{name}` is a relative path, and there is no workspace on that machine",
            found=repr(node.store),
            wanted='an absolute path on that machine: "/srv/sparkbuild"',
        )
    elif place in {"", ".", "/", "//"} or place.split("/")[0] in {"..", "~", *_OURS}:
        findings.add(
            at,
            f"the store of node `{name}` would lie among other things",
            found=repr(node.store),
            wanted="a folder of its own: an absolute path, or one inside the workspace that holds no sources",
        )


def _ssh(findings: Findings, name: str, node: Node) -> None:
    if name == LOCAL:
        findings.add(
            ("nodes", name, "connection"),
            f"the node `{LOCAL}` is this machine",
            found='connection = "ssh"',
            wanted="another name for a node that is reached over ssh",
        )
    if node.host_key and not _is_host_key(node.host_key):
        findings.add(
            ("nodes", name, "host_key"),
            f"the host key of node `{name}` is none",
            found=repr(node.host_key),
            wanted='"SHA256:..." as ssh-keygen -lf shows it, or the line of a .pub file: "ssh-ed25519 AAAA..."',
        )
    if not node.python.strip():
        findings.add(("nodes", name, "python"), f"node `{name}` has no Python", wanted='"python3", or a path')
    if node.key and not node.key.startswith(("/", "~/")):
        findings.add(
            ("nodes", name, "key"),
            f"the key of node `{name}` is a relative path",
            found=repr(node.key),
            wanted='the path of a private key: "~/.ssh/id_ed25519"',
        )
    _address(findings, name, node.address)
    for field in ("address", "user", "jump"):
        text = getattr(node, field)
        if text.startswith("-") or any(letter.isspace() or not letter.isprintable() for letter in text):
            findings.add(("nodes", name, field), f"`{field}` of node `{name}` cannot be one", found=repr(text))


def _address(findings: Findings, name: str, text: str) -> None:
    """Nothing but a host: what ssh would take in one word stands in fields of its own here."""
    user, at, host = text.rpartition("@")
    bare, colon, port = host.rpartition(":")
    hints = [f'user = "{user}"'] if at else []
    if colon and port.isdecimal() and (":" not in bare or bare.startswith("[")):  # an IPv6 address is full of colons
        host = bare
        hints.append(f"port = {int(port)}")
    if hints:
        findings.add(
            ("nodes", name, "address"),
            f"the address of node `{name}` is more than one",
            found=repr(text),
            wanted=", ".join([f'address = "{host.strip("[]")}"', *hints]),
        )


def _is_host_key(text: str) -> bool:
    words = text.split()
    if len(words) == 1:
        return _FINGERPRINT.fullmatch(text) is not None
    try:
        blob = base64.b64decode(words[1], validate=True) if len(words) > 1 else b""
    except (ValueError, binascii.Error):
        return False
    # a key begins with its own type: RFC 4253 section 6.6
    return blob[4 : 4 + len(words[0])] == words[0].encode() and len(blob) > 32
