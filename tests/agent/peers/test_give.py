"""Giving staged files: whole ones, arriving ones, to those with the token, and nothing that is not right."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent import driver
from tests.agent.driver import CHUNK, MIB, call, entry, finish, flip, list_of, request_for, sha256
from tests.agent.givers import TOKEN, Answer, Arriving, Giver, peers, wanted

Make = Callable[[str, int], Path]
Start = Callable[..., Giver]


@pytest.fixture
def staged(make: Make, dst: Path) -> Path:
    """A folder with one file of two and a half chunks."""
    assert call("stage", request_for(dst, {"deep/a b.bin": make("a", 10 * MIB)})).code == 0
    return dst


IDENTITY = {"kind": "file", "of": "deep/a b.bin"}


def test_a_whole_file(staged: Path, give: Start) -> None:
    giver = give(staged)
    content = (staged / "deep/a b.bin").read_bytes()
    assert Answer(giver.port, "deep/a%20b.bin").all() == (content, 0, True)
    assert Answer(giver.port, "deep/a%20b.bin", wanted=wanted(content)).all() == (content, 0, True)
    by_identity = wanted(content, IDENTITY, known=False)
    assert Answer(giver.port, "deep/a%20b.bin", wanted=by_identity).all() == (content, 0, True)
    assert Answer(giver.port, "deep/a%20b.bin", wanted=wanted(content, known=False)).status == 200, "of the same key"
    told, _, _ = Answer(giver.port, "deep/a%20b.bin?sha256").all()
    assert told.decode() == sha256(staged / "deep/a b.bin")
    for start in (1, CHUNK - 1, CHUNK, 9 * MIB + 7, 10 * MIB):
        part = Answer(giver.port, "deep/a%20b.bin", start=start)
        assert part.status == 206
        assert part.all() == (content[start:], 0, True)


def test_what_is_not_given(staged: Path, give: Start, tmp_path: Path) -> None:
    giver = give(staged)
    content = (staged / "deep/a b.bin").read_bytes()
    (staged / "stranger").write_bytes(b"not staged")
    (staged / "deep/link").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("secret")
    names = ["stranger", "deep/link", "deep", "", ".", "..%2f..%2fsecret", "../../secret", "%2fetc%2fpasswd", "a%00b"]
    names += [".sparkbuild/ledger.json", ".sparkbuild%2fledger.json", "%ff", "deep//a%20b.bin", "deep/a%20b.bin%0d"]
    for name in names:
        assert Answer(giver.port, name).status == 404, name
    assert Answer(giver.port, "deep/a%20b.bin", token="s" * 32).status == 404
    assert Answer(giver.port, "deep/a%20b.bin", token="").status == 404
    assert Answer(giver.port, "deep/a%20b.bin", wanted=wanted(content[:-1])).status == 404
    assert Answer(giver.port, "deep/a%20b.bin", wanted=wanted(bytes(len(content)))).status == 404
    assert Answer(giver.port, "deep/a%20b.bin", wanted=wanted(content, {"of": "b"}, known=False)).status == 404
    assert Answer(giver.port, "deep/a%20b.bin", wanted="x").status == 400
    assert Answer(giver.port, "deep/a%20b.bin", start=10 * MIB + 1).status == 416
    other = give(staged, char="b")
    assert Answer(other.port, "deep/a%20b.bin", wanted=wanted(content, known=False)).status == 404, "of another key"


def test_a_file_behind_a_link(staged: Path, give: Start) -> None:
    giver = give(staged)
    (staged / "deep").rename(staged / "real")
    (staged / "deep").symlink_to("real")
    content = (staged / "real/a b.bin").read_bytes()
    data, _, well = Answer(giver.port, "deep/a%20b.bin", wanted=wanted(content)).all()
    assert (data, well) == (b"", False)


def test_a_chunk_that_went_bad_is_not_given(staged: Path, give: Start) -> None:
    giver = give(staged)
    content = (staged / "deep/a b.bin").read_bytes()
    flip(staged / "deep/a b.bin", 5 * MIB)
    data, _, well = Answer(giver.port, "deep/a%20b.bin").all()
    assert (data, well) == (content[:CHUNK], False)


def test_a_file_as_it_arrives(dst: Path, give: Start) -> None:
    content = os.urandom(9 * MIB)
    giver = give(dst, expected=True)
    early = Answer(giver.port, "a.bin", wanted=wanted(content, IDENTITY))  # before there is a folder
    assert early.status == 200
    assert early.frame() == b""
    arriving = Arriving(dst, "a.bin", content, IDENTITY)
    with arriving.opened() as write:
        write(1)
        assert early.frame() == b"", "the second is not the first"
        write(0)
        frames = [early.frame() for _ in range(2)]
        while b"" in frames:
            frames.remove(b"")
            frames.append(early.frame())
        assert frames == [content[:CHUNK], content[CHUNK : 2 * CHUNK]]
        late = Answer(giver.port, "a.bin", wanted=wanted(content, IDENTITY), start=CHUNK)
        assert late.frame() == content[CHUNK : 2 * CHUNK]
        digest = Answer(giver.port, "a.bin?sha256", wanted=wanted(content, IDENTITY, known=False))
        assert digest.frame() == b"", "only when it is whole"
        write(2)
        arriving.finish()
        assert early.all()[0] == late.all()[0] == content[2 * CHUNK :]
        assert digest.all()[0].decode() == sha256(dst / "a.bin")


def test_a_torn_chunk_is_not_given(dst: Path, give: Start) -> None:
    """As a power failure leaves it: the list says more than the part has."""
    content = os.urandom(6 * MIB)
    giver = give(dst, expected=True)
    arriving = Arriving(dst, "a.bin", content, IDENTITY)
    with arriving.opened() as write:
        write(0, bytes(CHUNK))
        answer = Answer(giver.port, "a.bin", wanted=wanted(content, IDENTITY))
        assert answer.frame() == b""
        write(0)
        assert answer.frame() == content[:CHUNK]


def test_who_works_gives_up(dst: Path, give: Start) -> None:
    content = os.urandom(6 * MIB)
    giver = give(dst, expected=True)
    arriving = Arriving(dst, "a.bin", content, IDENTITY)
    with arriving.opened() as write:
        write(0)
        answer = Answer(giver.port, "a.bin", wanted=wanted(content, IDENTITY))
        assert answer.frame() == content[:CHUNK]
    start = time.monotonic()
    data, beats, well = answer.all()
    assert (data, well) == (b"", False)
    assert beats >= 1
    assert time.monotonic() - start < 5
    assert Answer(giver.port, "b.bin", wanted=wanted(content, IDENTITY)).status == 404


@pytest.mark.parametrize("before", ["nothing", "a run that was killed"])
def test_work_that_ended_before_anybody_asked(make: Make, dst: Path, tmp_path: Path, give: Start, before: str) -> None:
    """What was announced came and went between two looks: what it did not bring does not come any more, and who wants
    that reads the source.
    """
    ours, theirs = make("a", 5 * MIB), make("b", 5 * MIB)  # under one name, as two versions of a source
    if before != "nothing":
        with Arriving(dst, "a.bin", ours.read_bytes(), IDENTITY).opened() as write:
            write(0)
    giver = give(dst, expected=True)
    assert call("stage", list_of(dst, [entry("a.bin", ours)])).code == 0
    answer = Answer(giver.port, "a.bin", wanted=wanted(theirs.read_bytes()))
    assert any(answer.frame() is None for _ in range(5)), "a beat each second, for an hour"
    other = list_of(tmp_path / "other", [entry("a.bin", theirs)])
    staged = call("stage", {**other, "peers": peers(giver)})
    assert (staged.code, staged.last["received"]) == (0, 0), staged.last


def test_content_that_nobody_knew_before(dst: Path, give: Start) -> None:
    """Only what this very staging makes: the file of that name may be an older one."""
    content = os.urandom(5 * MIB)
    old = Arriving(dst, "old.bin", content, {})
    with old.opened() as write:
        write(0)
        write(1)
        old.finish()
    stale = Arriving(dst, "new.bin", content, {})
    with stale.opened() as write:
        write(0)
    time.sleep(0.1)
    giver = give(dst, expected=True)
    any_of_it = wanted(content, known=False)
    answers = [Answer(giver.port, name, wanted=any_of_it) for name in ("old.bin", "new.bin")]
    assert [answer.frame() for answer in answers] == [b"", b""]
    again = Arriving(dst, "new.bin", content, {})
    with again.opened() as write:
        write(0)
        assert answers[1].frame() == content[:CHUNK]
        again.part.remove()
        with again.part.opened() as other:  # begun once more, perhaps from something else
            os.pwrite(other.fd, content, 0)
            again.part.note(0, again.digest_of(0))
            again.part.note(1, again.digest_of(1))
            assert answers[1].all() == (b"", 0, False)


def test_many_callers_and_slow_ones(staged: Path, give: Start) -> None:
    giver = give(staged)
    content = (staged / "deep/a b.bin").read_bytes()
    idle = [socket.create_connection(("127.0.0.1", giver.port)) for _ in range(10)]
    slow = [socket.create_connection(("127.0.0.1", giver.port)) for _ in range(4)]
    for one in slow:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(f"GET /{TOKEN}/deep/a%20b.bin HTTP/1.1\r\n\r\n".encode())
    right: list[bool] = []

    def ask() -> None:
        right.append(Answer(giver.port, "deep/a%20b.bin").all()[0] == content)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert right == [True] * 12
    assert giver.memory() < 64 * MIB
    more = [socket.create_connection(("127.0.0.1", giver.port)) for _ in range(30)]
    more[-1].settimeout(5)
    assert more[-1].recv(1) == b"", "too many: hung up on"
    for one in (*idle, *slow, *more):
        one.close()
    for _ in range(50):
        try:
            assert Answer(giver.port, "deep/a%20b.bin").all()[0] == content
            break
        except OSError:
            time.sleep(0.2)
    else:
        raise AssertionError("it does not recover")


NOISE = [b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"POST /x HTTP/1.1\r\n\r\n", bytes(20000)]


@pytest.mark.parametrize("head", NOISE)
def test_noise(staged: Path, give: Start, head: bytes) -> None:
    giver = give(staged)
    with socket.create_connection(("127.0.0.1", giver.port)) as noisy:
        noisy.sendall(head)
        noisy.shutdown(socket.SHUT_WR)
        noisy.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            noisy.recv(100)
    assert Answer(giver.port, "deep/a%20b.bin").status == 200
    assert giver.process.poll() is None


def test_it_ends_with_its_caller(staged: Path, give: Start) -> None:
    giver = give(staged)
    assert giver.process.stdin
    giver.process.stdin.close()
    assert giver.process.wait(5) == 143


def test_two_operators_who_began_at_either_end_do_not_wait_for_each_other(
    make: Make, tmp_path: Path, give: Start
) -> None:
    """Each has one of two nodes first, and has the other one take from it: the locks are crossed by then."""
    source = make("a", 40 * MIB)
    folders = [tmp_path / "node1", tmp_path / "node2"]
    givers = [give(folder, expected=True) for folder in folders]
    began = time.monotonic()
    stagings = []
    for folder, other in zip(folders, reversed(givers), strict=True):
        files = {f"{number}.bin": source for number in range(6)}
        stagings.append(driver.start("stage", {**request_for(folder, files), "peers": peers(other)}))
    answers = [finish(one, timeout=150) for one in stagings]
    assert time.monotonic() - began < 30
    assert [answer.code for answer in answers] == [0, 0], [answer.events for answer in answers]
    assert any("it waits for another node itself" in answer.logs for answer in answers)
    assert sorted(sha256(folder / "5.bin") for folder in folders) == [sha256(source)] * 2
    assert min(answer.last["read"] for answer in answers) < 6 * 40 * MIB, "the other one still takes from the first"
