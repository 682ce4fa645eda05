"""What the kernel lists by netlink (man 7 netlink): one question, and its answers message by message."""

from __future__ import annotations

import _socket  # `socket` takes 8 ms to import, more than all that is asked here
import struct
import sys
from collections.abc import Iterator

_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ERROR, _DONE = 2, 3  # kinds of messages: NLMSG_ERROR, NLMSG_DONE
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port


def listed(protocol: int, kind: int, question: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each answer. OSError when the kernel does not know the question, or says nothing for a
    second; ValueError when an answer is cut.
    """
    kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, protocol)
    try:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(question), kind, _DUMP, 1, 0) + question)
        while True:
            for answer, body in messages(kernel.recv(1 << 17)):
                if answer == _DONE:
                    return
                yield answer, body
    finally:
        kernel.close()


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each message in a datagram. OSError and ValueError as of `listed`."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind = _HEADER.unpack_from(data, at)[:2]
        if length < _HEADER.size or at + length > len(data):
            raise ValueError("a netlink message is cut")
        body = data[at + _HEADER.size : at + length]
        if kind == _ERROR:
            number = -int.from_bytes(body[:4], sys.byteorder, signed=True)
            raise OSError(number, "the kernel does not list that")
        yield kind, body
        at += (length + 3) & ~3
