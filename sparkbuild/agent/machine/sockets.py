"""The TCP sockets that listen in this network namespace, as the kernel lists them. Opens no connection: a rendezvous
port that sees one opened and dropped may count it as a rank.
"""

from __future__ import annotations

import _socket  # see netlink
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.machine import netlink

if TYPE_CHECKING:
    from collections.abc import Iterable

# of each family: the table of a kernel, or a sandbox, that does not know sock_diag
TABLES = {int(_socket.AF_INET): "/proc/net/tcp", int(_socket.AF_INET6): "/proc/net/tcp6"}
_SOCK_DIAG, _BY_FAMILY, _TCP, _LISTEN = 4, 20, 6, 10  # man 7 sock_diag; include/net/tcp_states.h
# Of inet_diag_req_v2 the family, protocol, extensions and states, and no socket; of inet_diag_msg first the family,
# port and address, then the user and inode (include/uapi/linux/inet_diag.h).
_QUESTION, _ANSWER = struct.Struct("=BBBxI48x"), struct.Struct("!B3xH2x16s")
_OWNER = struct.Struct("=64xII")
_LOCAL, _STATE, _UID, _INODE = 1, 3, 7, 9  # columns of /proc/net/tcp (net/ipv4/tcp_ipv4.c: get_tcp4_sock)


class Listener(NamedTuple):
    """A socket that listens: whose it is, and the address that it is bound to, 4 or 16 bytes."""

    uid: int
    packed: bytes

    @property
    def address(self) -> str:
        """The address as people write it."""
        family = _socket.AF_INET if len(self.packed) == 4 else _socket.AF_INET6
        return _socket.inet_ntop(family, self.packed).removeprefix("::ffff:")

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.address.startswith("127.") or self.address == "::1"


Listeners = dict[int, dict[str, Listener]]  # by port and inode


def listeners(family: int) -> Listeners:
    """Those of one family of addresses. The table is the slower way: for it, the kernel goes through all places where
    it could have a connection, of which a machine with much memory has half a million.
    """
    try:
        return by_diag(family)
    except (OSError, ValueError):
        return by_table(TABLES[family])


def by_diag(family: int) -> Listeners:
    """By what the kernel answers to sock_diag. OSError or ValueError as of `netlink.listed`."""
    question = _QUESTION.pack(family, _TCP, 0, 1 << _LISTEN)
    return read(netlink.listed(_SOCK_DIAG, _BY_FAMILY, question))


def read(answers: Iterable[tuple[int, bytes]]) -> Listeners:
    """Those of what sock_diag answered."""
    by_port: Listeners = {}
    for kind, body in answers:
        if kind == _BY_FAMILY and len(body) >= _OWNER.size:
            family, port, address = _ANSWER.unpack_from(body)
            uid, inode = _OWNER.unpack_from(body)
            listener = Listener(uid, address[: 4 if family == _socket.AF_INET else 16])
            by_port.setdefault(port, {})[str(inode)] = listener
    return by_port


def by_table(table: str) -> Listeners:
    """By a table of /proc/net, which has an address as words of 32 bits in hex, in this machine's order of bytes."""
    by_port: Listeners = {}
    try:
        with open(table, encoding="ascii", errors="replace") as file:
            rows = file.readlines()[1:]
    except OSError:
        return by_port
    for row in rows:
        words = row.split()
        if len(words) <= _INODE or words[_STATE] != f"{_LISTEN:02X}":
            continue
        address, _, port = words[_LOCAL].partition(":")
        with suppress(ValueError):  # the kernel writes no such row
            packed = unpacked(address)
            if len(packed) in {4, 16}:
                by_port.setdefault(int(port, 16), {})[words[_INODE]] = Listener(int(words[_UID]), packed)
    return by_port


def unpacked(row: str) -> bytes:
    """The bytes of an address in a table. ValueError when it is none."""
    words = bytes.fromhex(row)
    swapped = sys.byteorder == "little"
    return b"".join(words[at : at + 4][:: -1 if swapped else 1] for at in range(0, len(words), 4))
