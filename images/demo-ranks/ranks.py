#!/usr/bin/env python3
"""Makes several machines one lane, as far as ranks go: a stand-in for an engine that is spread over them.

Rank 0 waits until every other rank has joined it over the fabric, then starts the engine's command. All of them say
every half second that they live; when one is silent or gone, the lane ends everywhere. The others run no engine.

    ranks.py --rank 0 --world-size 2 --head 10.0.0.11 --fabric 10.0.0.11 --rendezvous-port 29500 -- python3 serve.py ...

Exit codes: 0 after SIGTERM or SIGINT, and on workers when the head was told to stop; 1 when the lane lost a rank, or
not all joined in time; 2 for wrong arguments and for a rank that the head refuses; 3 when the address cannot be bound;
else that of the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import selectors
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

BEAT = 0.5  # seconds between two signs of life
SILENCE = 3.0  # seconds without one, and a rank is lost
TELL = 5.0  # seconds between two lines about waiting
GRACE = 20.0  # seconds for the engine to end
LONGEST = 512  # bytes of a line

stopped = 0  # the signal that told us to stop


class Peer:
    """The other end of a connection: lines in, lines out, and when it was heard last. `rank` is -1 until it joined."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.host = host
        self.rank = -1
        self.heard = self.beaten = time.monotonic()
        self.data = b""
        self.closed = False

    def lines(self) -> list[str]:
        """What came since the last call; `closed` is set when nothing more will."""
        try:
            data = self.connection.recv(65536)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        self.closed = self.closed or not data
        self.heard = time.monotonic()
        *whole, self.data = (self.data + data).split(b"\n")
        self.closed = self.closed or len(self.data) > LONGEST
        return [line.decode("ascii", "replace").strip() for line in whole]

    def send(self, line: str) -> None:
        """Say something. A peer that takes nothing any more is found by its silence."""
        with contextlib.suppress(OSError):
            self.connection.send(f"{line}\n".encode())

    def beat(self) -> None:
        """A sign of life, when it is time for one."""
        if time.monotonic() - self.beaten >= BEAT:
            self.beaten = time.monotonic()
            self.send("beat")

    def silent(self) -> bool:
        """Nothing was heard for too long."""
        return time.monotonic() - self.heard > SILENCE


class Head:
    """Rank 0: the others come to it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.server = listen(args.fabric, args.rendezvous_port)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.server, selectors.EVENT_READ)
        self.peers: list[Peer] = []
        self.engine: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Until the lane ends; returns the exit code."""
        deadline = time.monotonic() + self.args.join_timeout
        told = time.monotonic()
        self.tell()
        while not stopped:
            lost = self.turn()
            if lost is not None:
                say(f"lost rank {lost.rank}")
                return self.end(1, f"lost rank {lost.rank}")
            if self.engine is None and len(self.joined()) + 1 == self.args.world_size:
                say(f"all {self.args.world_size} ranks are there: starting the engine")
                self.engine = start(self.args.command)
            if self.engine is not None:
                code = self.engine.poll()
                if code is not None:
                    say(f"the engine ended with code {code}")
                    return self.end(code if code >= 0 else 128 - code, "the engine ended")
            elif time.monotonic() > deadline:
                missing = sorted(set(range(1, self.args.world_size)) - set(self.joined()))
                say(f"not all ranks joined within {self.args.join_timeout:g} s; missing: {listed(missing)}")
                return self.end(1, "not all ranks joined")
            elif time.monotonic() - told > TELL:
                told = time.monotonic()
                self.tell()
        say(f"{signal.Signals(stopped).name}: stopping")
        return self.end(0, "the head was told to stop")

    def joined(self) -> dict[int, Peer]:
        """The ranks that are there."""
        return {peer.rank: peer for peer in self.peers if peer.rank > 0}

    def tell(self) -> None:
        """How many there are."""
        say(f"waiting for ranks: {len(self.joined()) + 1}/{self.args.world_size}")

    def turn(self) -> Peer | None:
        """Hear and be heard, for a moment; returns a rank that is lost."""
        for key, _ in self.selector.select(0.1):
            if key.fileobj is self.server:
                self.accept()
                continue
            peer: Peer = key.data
            for line in peer.lines():
                self.hear(peer, line)
        for peer in list(self.peers):
            if peer.closed or peer.silent():
                self.drop(peer)
                if peer.rank > 0:
                    return peer
            elif peer.rank > 0:
                peer.beat()
        return None

    def accept(self) -> None:
        """Somebody comes; who it is, it has to say."""
        with contextlib.suppress(OSError):
            connection, address = self.server.accept()
            peer = Peer(connection, str(address[0]))
            self.peers.append(peer)
            self.selector.register(connection, selectors.EVENT_READ, peer)

    def hear(self, peer: Peer, line: str) -> None:
        """One line of a peer."""
        if peer.rank > 0 or peer.closed:
            return  # a sign of life
        problem = self.problem(line)
        if problem:
            say(f"refused {peer.host}: {problem}")
            peer.send(f"refused {problem}")
            peer.closed = True
            return
        peer.rank = int(line.split()[1])
        peer.send("welcome")
        say(f"rank {peer.rank} joined from {peer.host} ({len(self.joined()) + 1}/{self.args.world_size})")

    def problem(self, line: str) -> str:
        """Why a peer that says this may not join; "" when it may."""
        words = line.split()
        if len(words) != 3 or words[0] != "join" or not all(word.isdigit() and len(word) < 9 for word in words[1:]):
            return "it speaks another language"
        rank, world = int(words[1]), int(words[2])
        if world != self.args.world_size:
            return f"rank {rank} is of a lane of {world}, not of {self.args.world_size}"
        if not 0 < rank < world:
            return f"there is no rank {rank} to join a lane of {world}"
        there = self.joined().get(rank)
        return f"rank {rank} has joined already, from {there.host}" if there else ""

    def drop(self, peer: Peer) -> None:
        """Forget a peer."""
        self.peers.remove(peer)
        self.selector.unregister(peer.connection)
        peer.connection.close()

    def end(self, code: int, why: str) -> int:
        """End the engine, then the others."""
        self.server.close()
        if self.engine is not None and self.engine.poll() is None:
            self.engine.send_signal(stopped or signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while self.engine.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
                for peer in self.joined().values():
                    peer.beat()
            if self.engine.poll() is None:
                say(f"the engine did not end within {GRACE:g} s: killed")
                self.engine.kill()
                self.engine.wait()
        for peer in self.joined().values():
            peer.send(f"end {code} {why}")
            peer.connection.close()
        say(f"the lane has ended: {why}")
        return code


def work(args: argparse.Namespace) -> int:
    """Any rank but 0: join, then live as long as the head does."""
    peer = join(args)
    if peer is None:
        return 0 if stopped else 1
    welcome = False
    with selectors.DefaultSelector() as selector:
        selector.register(peer.connection, selectors.EVENT_READ)
        while not stopped:
            for line in peer.lines() if selector.select(0.1) else []:
                word, _, rest = line.partition(" ")
                if word == "refused":
                    return fail(f"the head refuses rank {args.rank}: {rest}", 2)
                if word == "end":
                    code, _, why = rest.partition(" ")
                    say(f"the head has ended the lane: {why}")
                    return 0 if code == "0" else 1
                if word == "welcome" and not welcome:
                    welcome = True
                    say(f"joined {args.head} port {args.rendezvous_port} as rank {args.rank} of {args.world_size}")
            if peer.closed or peer.silent():
                say(f"lost the head at {args.head}" + ("" if peer.closed else f": silent for {SILENCE:g} s"))
                return 1
            peer.beat()
    say(f"{signal.Signals(stopped).name}: stopping")
    return 0


def join(args: argparse.Namespace) -> Peer | None:
    """A connection to the head, however late that starts; None when it does not, or we were told to stop."""
    deadline = time.monotonic() + args.join_timeout
    told, problem = 0.0, ""
    while not stopped and time.monotonic() < deadline:
        try:
            address = (args.head, args.rendezvous_port)
            connection = socket.create_connection(address, timeout=2.0, source_address=(args.fabric, 0))
        except OSError as error:
            problem = str(error.strerror or error)
            if time.monotonic() - told > TELL:
                told = time.monotonic()
                say(f"waiting for the head at {args.head} port {args.rendezvous_port}: {problem}")
            time.sleep(0.2)
            continue
        peer = Peer(connection, args.head)
        peer.send(f"join {args.rank} {args.world_size}")
        return peer
    if not stopped:
        say(f"no head at {args.head} port {args.rendezvous_port} within {args.join_timeout:g} s: {problem}")
    return None


def listen(address: str, port: int) -> socket.socket:
    """The socket that the others come to, on the fabric alone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, port), family=family)
    except OSError as error:
        raise SystemExit(fail(f"cannot listen on {address} port {port}: {error.strerror or error}", 3)) from None
    server.setblocking(False)
    return server


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """The engine; it dies with this process, however that ends."""
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    try:
        return subprocess.Popen(command, preexec_fn=die_with_parent)  # noqa: S603, PLW1509 - a list, and one thread
    except OSError as error:
        raise SystemExit(fail(f"cannot start {command[0]}: {error.strerror or error}", 2)) from None


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="ranks.py", description="Run an engine once all ranks of a lane are there.")
    parser.add_argument("--rank", type=int, required=True, help="0 is the head")
    parser.add_argument("--world-size", type=int, required=True, help="how many ranks there are")
    parser.add_argument("--head", required=True, help="rank 0's address on the fabric")
    parser.add_argument("--fabric", required=True, help="our own address on the fabric: bound, and connected from")
    parser.add_argument("--rendezvous-port", type=int, default=29500, help="rank 0's port (default: %(default)s)")
    parser.add_argument("--join-timeout", type=float, default=300.0, help="seconds to join in (default: %(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after `--`: the engine, started on rank 0")
    args = parser.parse_args(argv)
    args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not 0 <= args.rank < args.world_size:
        parser.error(f"there is no rank {args.rank} in a lane of {args.world_size}")
    if args.rank == 0 and not args.command:
        parser.error("rank 0 needs the engine's command after `--`")
    return args


def listed(numbers: list[int]) -> str:
    """Numbers for people."""
    return ", ".join(map(str, numbers))


def say(text: str) -> None:
    """One line of the log."""
    print(f"ranks.py: {text}", flush=True)


def fail(text: str, code: int) -> int:
    """Say why it ends; returns the exit code."""
    print(f"ranks.py: error: {text}", file=sys.stderr, flush=True)
    return code


def on_signal(number: int, _frame: FrameType | None) -> None:
    """Told to stop."""
    global stopped  # noqa: PLW0603 - a signal handler has no other way to say it
    stopped = number


def main() -> int:
    """See the module."""
    args = arguments()
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return Head(args).run() if args.rank == 0 else work(args)


if __name__ == "__main__":
    sys.exit(main())
