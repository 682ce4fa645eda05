"""Nodes that are stricter than sshd's defaults: few sessions, login shells with a mind of their own, a firewall."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import command
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.reach import LOOK, NOTHING, SYSTEM_PYTHON, place, reached, workspace
from tests.rack.strict import firewall, login_shell, sshd

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """One node without docker."""
    with Rack.up(1, docker=False) as up:
        yield up


@pytest.fixture
def root(tmp_path: Path, wire: Rack, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home/.ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return workspace(tmp_path / "ws", wire)


def at_once(count: int, call: Any) -> list[Any]:
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except NodeError as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.parametrize("sessions", [1, 2])
def test_few_sessions(wire: Rack, root: Path, sessions: int) -> None:
    node = wire.nodes[0]
    with sshd(node, f"MaxSessions {sessions}"), reached(root, {"dgx1": place(node)}) as nodes:
        agent = nodes.agent("dgx1")
        for _ in range(5):
            assert agent.call("facts", LOOK) == NOTHING
        assert at_once(12, lambda: agent.call("facts", LOOK)) == [NOTHING] * 12
        logged_in = node.run(["sh", "-c", "ps -eo args | grep -c '^sshd.*: root@notty'"]).out.strip()
        assert 1 <= int(logged_in) <= 2, "one agent, and what sent it"
        assert agent.call("facts", LOOK) == NOTHING, "those that are there are used again"
        assert node.run(["sh", "-c", "ps -eo args | grep -c '^sshd.*: root@notty'"]).out.strip() == logged_in


def test_no_sessions(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    with sshd(node, "MaxSessions 0"), reached(root, {"dgx1": place(node)}) as nodes:
        began = time.monotonic()
        with pytest.raises(NodeError, match="dgx1 opens no session") as raised:
            nodes.agent("dgx1").call("facts", LOOK)
        assert time.monotonic() - began < 10
        assert "MaxSessions" in raised.value.next


SHELLS = {
    "a window title": r"printf '\033]0;title\007'",
    "no end of line": "printf welcome",
    "many lines": "seq 1 1000; echo beware >&2",
    "json": """printf '{"event":"result","facts":[]}'; echo '{"event":"error"}'""",
}


@pytest.mark.parametrize("name", SHELLS)
def test_a_login_shell_that_talks_first(wire: Rack, root: Path, name: str) -> None:
    node = wire.nodes[0]
    user = f"u{list(SHELLS).index(name)}"
    login_shell(node, user, SHELLS[name])
    with reached(root, {"dgx1": place(node, user=user, store=f"/home/{user}/store")}) as nodes:
        agent = nodes.agent("dgx1")
        assert agent.call("facts", LOOK) == NOTHING
        source = root / "file"
        source.write_bytes(b"x" * 100_000)
        digest = subprocess.run(["sha256sum", source], capture_output=True, text=True, check=True).stdout.split()[0]
        assert agent.put("incoming/x", str(source), digest) == 100_000


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FIRST", 3.0)
    monkeypatch.setattr(command, "PULSE", 0.5)


@pytest.mark.parametrize(
    ("name", "program", "found"),
    [
        ("hangs", "echo wait; sleep 1000", "nothing of the agent within 3 s\nit says: wait"),
        ("reads", "read line", "the request did not arrive whole"),
        ("bites", "head -c 20 >/dev/null", "the request did not arrive whole"),
        ("swallows", "cat >/dev/null", "nothing of the agent within 3 s"),
        ("endless", "yes", "bytes, and nothing of the agent"),
        ("floods", "exec cat /dev/zero", "bytes, and nothing of the agent"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_login_shell_that_does_not_come_to_the_agent(
    wire: Rack, root: Path, name: str, program: str, found: str
) -> None:
    node = wire.nodes[0]
    login_shell(node, name, program)
    with reached(root, {"dgx1": place(node, user=name, store=f"/home/{name}/store")}) as nodes:
        began = time.monotonic()
        with pytest.raises(NodeError) as raised:
            nodes.agent("dgx1").call("facts", LOOK)
        assert time.monotonic() - began < 10
    assert f"the login shell of {name} on dgx1" in raised.value.what
    assert found in raised.value.found
    assert len(str(raised.value)) < 2000


SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"here")
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Answer).serve_forever()
"""


def ask(url: str) -> bytes:
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(4096), b""))[-4:]


@pytest.mark.parametrize("reject", [False, True])
@pytest.mark.parametrize("bound", ["0.0.0.0", "address"])
def test_a_firewall_that_lets_ssh_in_alone(wire: Rack, root: Path, bound: str, reject: bool) -> None:
    node = wire.nodes[0]
    address = node.address if bound == "address" else bound
    argv = [*node.inside(), SYSTEM_PYTHON, "-c", SERVER, address, "8000"]
    with subprocess.Popen(argv) as server, reached(root, {"dgx1": place(node)}) as nodes:
        try:
            wait_for("it listens", lambda: ":8000" in node.run(["ss", "-Hltn"]).out)
            with nodes.door("dgx1", node.address, 8000) as url:
                assert url == f"http://{node.address}:8000", "nothing in between where there is a direct way"
            with firewall(node, reject=reject):
                for host in (node.address, "0.0.0.0", "a-name-of-the-operators-own.invalid"):
                    with nodes.door("dgx1", host, 8000) as url:
                        assert url.startswith("http://127.0.0.1:")
                        assert ask(url) == b"here"
                with (
                    sshd(node, "AllowTcpForwarding no"),
                    reached(root, {"dgx1": place(node)}) as anew,
                    pytest.raises(NodeError) as raised,
                    anew.door("dgx1", node.address, 8000),
                ):
                    pass
                assert "AllowTcpForwarding" in raised.value.found
        finally:
            server.kill()
