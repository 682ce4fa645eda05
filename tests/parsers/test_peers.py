"""What nodes say to each other, and what any user of a node may say to an agent: requests and answers of peers, lists
of parts that are offered, claims.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.lane import hold
from sparkbuild.agent.ledger import part
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.peers import give, offer
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.stage import peers
from sparkbuild.agent.store import httpd, receive
from tests.parsers.near import bounded, changed, damaged, json_like
from tests.parsers.served import tcp, unix

ASKED = (
    b"GET /token/deep/a%20b.bin?sha256 HTTP/1.1\r\nHost: peer\r\nWanted: 5 " + b"a" * 64 + b" -\r\n"
    b"Range: bytes=2-4\r\n\r\n"
)
NUMBERS = st.sampled_from(
    [b"5", b"-1", b"9" * 5000, b"\xb2", b"1e9", b"0x10", b"1_0", b"", b" 5 ", b"18446744073709551616"]
)
ANSWER = b"HTTP/1.1 206 Partial Content\r\nContent-Type: x\r\nContent-Length: 5\r\n\r\n"


@given(asked=damaged(ASKED), number=NUMBERS, other=NUMBERS)
def test_a_request_of_a_peer(asked: bytes, number: bytes, other: bytes) -> None:
    ours, theirs = socket.socketpair()
    asked = asked.replace(b"bytes=2-4", b"bytes=" + number + b"-" + other).replace(b"Wanted: 5", b"Wanted: " + number)
    with ours, theirs, bounded():
        theirs.sendall(asked[:60_000])  # what a socket takes before anybody reads
        theirs.shutdown(socket.SHUT_WR)
        request = httpd._read(ours, 5.0)
        if request is not None:
            request.span(5)
            give._want(request.headers.get("wanted", ""))
            give._start(request.headers.get("range", ""), 5)
            give._unquoted(request.path.encode("latin-1"))


@given(answer=damaged(ANSWER), number=NUMBERS)
def test_the_head_of_an_answer_of_a_relay(answer: bytes, number: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, bounded(OSError):
        theirs.sendall(answer.replace(b": 5", b": " + number)[:60_000])
        theirs.shutdown(socket.SHUT_WR)
        receive._head(ours)


FRAMES = bytes(4) + struct.pack(">I", 5) + b"hello" + struct.pack(">I", give.GONE)


@given(head=damaged(ANSWER), frames=damaged(FRAMES), length=st.sampled_from([0, 1, CHUNK, CHUNK + 1, 0xFFFFFFFF]))
def test_what_a_peer_gives(head: bytes, frames: bytes, length: int) -> None:
    view = memoryview(bytearray(16))
    with tcp(head + frames + struct.pack(">I", length)) as port, bounded(OSError):
        peer = peers.Peer("127.0.0.1", port)
        several = peers.Peers("token", [peer], lambda _told: None, lambda: None, lambda: None)
        stream = peers._Stream(peer, several, Wanted("a.bin", {}, 5, "", {}))
        try:
            stream.read(view)
        finally:
            stream.close()


@pytest.fixture(scope="module")
def dst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("offer")
    (folder / ".sparkbuild").mkdir()
    (folder / f".sparkbuild/{part.stem('a.bin')}.part").write_bytes(b"hello")
    return folder


HEADER = {"digest": "xxh3", "chunk": CHUNK, "size": 5, "source": {"sha256": "b" * 64}, "extents": []}


@given(
    header=st.one_of(json_like(HEADER), st.sampled_from([b"[" * 60_000, b'{"source":' * 6000])),
    value=st.binary(max_size=16),
)
def test_the_list_of_a_part_that_is_offered(dst: Path, header: bytes, value: bytes) -> None:
    (dst / f".sparkbuild/{part.stem('a.bin')}.chunks").write_bytes(header + b"\n" + value)
    with bounded():
        given_out = offer.Offer(str(dst), "c" * 64, expected=True)
        want = offer.Want(5, "", offer.mark({"sha256": "b" * 64}))
        given_out.has("a.bin", want)
        given_out.chunk("a.bin", want, 0, memoryview(bytearray(5)))


@given(source=changed({"sha256": "b" * 64, "size": 5}))
def test_what_a_source_is_compared_by(source: object) -> None:
    with bounded():
        if isinstance(source, dict):
            offer.mark(source)


@given(claim=json_like({"recipe": "alpha", "who": "me@here", "since": 1.7e9}).map(lambda data: data[:8192]))
def test_who_holds_a_node(dst: Path, claim: bytes) -> None:
    with unix(str(dst / "claim"), claim, greets=True) as place, bounded():
        holder = hold._ask(place)
        if holder is not None:
            json.dumps(hold._refused(holder).fields)


def test_the_place_is_short_enough_for_a_socket(dst: Path) -> None:
    assert len(os.fspath(dst)) < 100
