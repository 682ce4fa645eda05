"""OpenSSH's certificates: a public key with the signature of an authority, for a host or for a user.

Format: PROTOCOL.certkeys of OpenSSH. What that of a host must fulfil: sshd(8), and ssh-keygen(1) under CERTIFICATES.
That of a user is judged by the server.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Collection
from typing import NamedTuple

import paramiko

from sparkbuild.nodes.ssh.tokens import fits

SUFFIX = "-cert-v01@openssh.com"
_MOST = 256  # names, as OpenSSH has it
_HOST = 2  # kind of certificate; 1 is that of a user
_FIELDS = {"ssh-ed25519": 1, "sk-ecdsa-sha2-nistp256": 3}  # of the public key that it is about; all others have 2
_SIGNATURES = {"rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519"}  # as OpenSSH: never by SHA-1; beside all ecdsa-...


class Certificate(NamedTuple):
    """`authority` is base64, as known_hosts files have it; `key` is the public key that it is about, as bytes without
    any certificate; times are seconds since 1970.
    """

    key: bytes
    kind: int
    identity: str
    principals: tuple[str, ...]
    after: int
    before: int
    critical: bytes
    authority: str
    signed: bytes
    signature: bytes


def parsed(blob: bytes) -> Certificate:
    """A certificate from its bytes. ValueError when they are none."""
    try:
        return _parsed(blob)
    except (paramiko.SSHException, struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"no certificate: {error}") from None


def type_of(blob: bytes) -> str:
    """What a public key, a certificate or a signature says that it is: its first field, whatever its bytes are."""
    return paramiko.Message(blob).get_binary().decode(errors="replace")


def _parsed(blob: bytes) -> Certificate:
    message = paramiko.Message(blob)
    name = type_of(blob)
    message.get_binary()
    if not name.endswith(SUFFIX):
        raise ValueError(f"{name} is no certificate")
    plain = name.removesuffix(SUFFIX)
    key = paramiko.Message()
    key.add_string(plain if not plain.startswith("sk-") else f"{plain}@openssh.com")
    message.get_binary()  # nonce
    for _ in range(_FIELDS.get(plain, 2)):
        key.add_string(message.get_binary())
    message.get_int64()  # serial number
    kind, identity = message.get_int(), message.get_binary().decode(errors="replace")
    listed = paramiko.Message(message.get_binary())
    principals: list[str] = []
    while listed.get_remainder():
        if len(principals) >= _MOST:
            raise ValueError(f"no certificate: more than {_MOST} names")
        principals.append(listed.get_binary().decode(errors="replace"))
    after, before, critical = message.get_int64(), message.get_int64(), message.get_binary()
    message.get_binary()  # extensions
    message.get_binary()  # reserved
    authority = message.get_binary()
    signed, signature = message.get_so_far(), message.get_binary()
    return Certificate(
        key.asbytes(), kind, identity, tuple(principals), after, before, critical,
        base64.b64encode(authority).decode(), signed, signature,
    )  # fmt: skip


def problem(blob: bytes, name: str, authorities: Collection[str]) -> str:
    """Why a certificate does not speak for the server `name`; "" when it does. `authorities`: base64 of keys."""
    try:
        found = parsed(blob)
    except ValueError as error:
        return f"it cannot be read: {error}"
    now = time.time()
    checks = (
        (found.kind != _HOST, "it is that of a user"),
        (found.authority not in authorities, "it is signed by another authority"),
        (bool(found.critical), "it has critical options, and none is known for hosts"),
        (not now >= found.after, f"it is valid from {_when(found.after)} on"),
        (not now < found.before, f"it was valid until {_when(found.before)}"),
        (not found.principals, "it names no host: it would be good for all of them"),
        (not any(fits(one.lower(), name) for one in found.principals),
         f"it is for {', '.join(found.principals)}"),
    )  # fmt: skip
    for fails, text in checks:
        if fails:
            return f"{text} ({found.identity!r})"
    return "" if _is_signed(found) else f"its signature is wrong ({found.identity!r})"


def _is_signed(found: Certificate) -> bool:
    blob = base64.b64decode(found.authority)
    algorithm = type_of(found.signature)
    if algorithm not in _SIGNATURES and not algorithm.startswith("ecdsa-sha2-"):
        return False
    try:
        key = paramiko.PKey.from_type_string(type_of(blob), blob)
        return bool(key.verify_ssh_sig(found.signed, paramiko.Message(found.signature)))
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError):
        return False


def _when(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(seconds, 1 << 40)))
