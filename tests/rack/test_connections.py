"""Connections over ssh to real sshds: who may, through which way, and what is said when it does not work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core import interrupt
from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.nodes.ssh import command, link
from tests.rack import keys
from tests.rack.proc import wait_for
from tests.rack.rack import REPOSITORY, Rack
from tests.rack.reach import (
    ENDLESS,
    LOOK,
    NOTHING,
    SYSTEM_PYTHON,
    agents,
    endless,
    place,
    reached,
    ssh_agent,
    wait_for_agents,
    workspace,
)

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """Two nodes without docker."""
    with Rack.up(2, docker=False) as up:
        yield up


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without ssh keys, and no agent."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def root(tmp_path: Path, wire: Rack) -> Path:
    return workspace(tmp_path / "ws", wire)


def failure(root: Path, **places: Any) -> NodeError:
    """What the first of the nodes says."""
    with reached(root, places) as nodes, pytest.raises(NodeError) as raised:
        nodes.agent(next(iter(places))).call("facts", LOOK)
    return raised.value


def test_all_nodes_at_once_each_with_one_connection(wire: Rack, root: Path) -> None:
    places = {node.name: place(node) for node in wire.nodes}
    with reached(root, places) as nodes:
        found: dict[str, Any] = {}

        def ask(name: str) -> None:
            found[name] = nodes.agent(name).call("facts", LOOK)

        threads = [threading.Thread(target=ask, args=(name,)) for name in [*places, *places, *places]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == dict.fromkeys(places, NOTHING)
        for node in wire.nodes:
            logged_in = node.run(["sh", "-c", "ps -eo args | grep -c '^sshd: root@notty'"]).out.strip()
            assert logged_in == "1", node.run(["ps", "-eo", "args"]).out
            assert nodes.address(node.name) == node.address


def test_a_connection_is_made_again_after_it_was_closed(wire: Rack, root: Path) -> None:
    with reached(root, {"dgx1": place(wire.nodes[0])}) as nodes:
        agent = nodes.agent("dgx1")
        assert agent.call("facts", LOOK) == NOTHING
        agent.close()
        assert agent.call("facts", LOOK) == NOTHING


def test_an_unknown_host_key(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    (root / "known_hosts").unlink()
    error = failure(root, dgx1=place(node))
    assert error.what == "the host key of dgx1 is not known"
    assert error.where == f"root@{node.address}:22"
    assert error.found == f"ssh-ed25519 {node.host_key_fingerprint}"
    assert error.next.startswith("doit trust dgx1")
    assert not (root / "known_hosts").exists()


def test_a_changed_host_key(wire: Rack, root: Path, tmp_path: Path) -> None:
    node = wire.nodes[0]
    keys.make(tmp_path / "other", "other")
    other = keys.public(tmp_path / "other")
    (root / "known_hosts").write_text(f"{node.address} {other}\n")
    error = failure(root, dgx1=place(node))
    assert error.what == "the host key of dgx1 has changed"
    assert error.found == f"ssh-ed25519 {node.host_key_fingerprint}"
    assert keys.fingerprint(other) in error.wanted
    assert f"{root}/known_hosts:1" in error.wanted
    assert error.next.startswith("doit trust dgx1")


def test_a_pin_wins_and_a_wrong_one_stops(wire: Rack, root: Path, tmp_path: Path) -> None:
    node = wire.nodes[0]
    keys.make(tmp_path / "other", "other")
    other = keys.public(tmp_path / "other")
    (root / "known_hosts").write_text(f"{node.address} {other}\n")
    for pin in (node.host_key, node.host_key_fingerprint):
        with reached(root, {"dgx1": place(node, host_key=pin)}) as nodes:
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    workspace(root, wire)
    error = failure(root, dgx1=place(node, host_key=keys.fingerprint(other)))
    assert error.what == "dgx1 has another host key"
    assert error.wanted == f"{keys.fingerprint(other)} (host_key in config.toml)"
    assert "correct host_key in config.toml" in error.next


def test_the_users_known_hosts_hashed_and_revoked(wire: Rack, root: Path, home: Path) -> None:
    node = wire.nodes[0]
    (root / "known_hosts").unlink()
    theirs = home / ".ssh/known_hosts"
    theirs.write_text(f"{node.address} {node.host_key}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(theirs)], check=True, capture_output=True)
    assert theirs.read_text().startswith("|1|")
    with reached(root, {"dgx1": place(node)}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    workspace(root, wire)
    theirs.write_text(f"@revoked * {node.host_key}\n")
    error = failure(root, dgx1=place(node))
    assert error.what == "the host key of dgx1 was revoked"
    assert f"{theirs}:1" in error.found


def test_the_type_of_key_that_is_known_is_asked_for(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    node.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", "/srv/ecdsa"], check=True)
    node.run(["sh", "-c", "printf 'HostKey /srv/ecdsa\\n' >> /etc/ssh/sshd_config; kill -HUP $(cat /run/sshd.pid)"])
    try:
        ecdsa = " ".join(node.path("/srv/ecdsa.pub").read_text().split()[:2])
        (root / "known_hosts").write_text(f"{node.address} {ecdsa}\n")
        wait_for("both keys are offered", lambda: "ecdsa" in node.run(["ssh-keyscan", "127.0.0.1"]).out)
        with reached(root, {"dgx1": place(node)}) as nodes:
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    finally:
        node.run(
            ["sh", "-c", "sed -i '/srv.ecdsa/d' /etc/ssh/sshd_config; rm /srv/ecdsa*; kill -HUP $(cat /run/sshd.pid)"]
        )
        wait_for(
            "one key is offered", lambda: node.run(["ssh-keyscan", "127.0.0.1"]).out.split()[1::3] == ["ssh-ed25519"]
        )


def test_a_user_who_may_not_log_in(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    error = failure(root, dgx1=place(node, user="nobody-here"))
    assert error.what == "dgx1 does not let nobody-here in"
    assert error.where == f"nobody-here@{node.address}:22"
    assert f"{node.key_file}: refused" in error.found
    assert "SSH_AUTH_SOCK" in error.found
    assert "ssh-copy-id" in error.next


def test_no_key_at_all(wire: Rack, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = wire.nodes[0]
    error = failure(root, dgx1=place(node, key=""))
    assert error.what == "dgx1 does not let root in"
    assert error.found == "ssh-agent: none runs here (SSH_AUTH_SOCK is not set)"
    with ssh_agent(tmp_path) as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        assert failure(root, dgx1=place(node, key="")).found == "ssh-agent: holds no key"
        error = failure(root, dgx1=place(node, key=str(tmp_path / "none")))
        assert f"{tmp_path}/none: there is no such file" in error.found
        (tmp_path / "junk").write_text("junk")
        assert "is no private key" in failure(root, dgx1=place(node, key=str(tmp_path / "junk"))).found


def test_a_key_with_a_passphrase(wire: Rack, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = wire.nodes[0]
    secret = tmp_path / "id locked"
    for name in ("", ".pub"):
        Path(f"{secret}{name}").write_text(Path(f"{node.key_file}{name}").read_text())
    secret.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "a secret", "-f", str(secret)], check=True, capture_output=True)
    error = failure(root, dgx1=place(node, key=str(secret)))
    assert f"{secret}: has a passphrase, and no ssh-agent holds it" in error.found
    assert error.next == f"ssh-add {secret}"
    with ssh_agent(tmp_path) as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        subprocess.run(["ssh-add", "-q", str(node.key_file)], env=env, check=True, capture_output=True)
        for key in (str(secret), ""):
            with reached(root, {"dgx1": place(node, key=key)}) as nodes:
                assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING


def test_an_agent_with_more_keys_than_the_server_looks_at(
    wire: Rack, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = wire.nodes[0]
    with ssh_agent(tmp_path) as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        for number in range(8):
            keys.make(tmp_path / f"key{number}", f"key {number}")
            subprocess.run(["ssh-add", "-q", str(tmp_path / f"key{number}")], env=env, check=True, capture_output=True)
        error = failure(root, dgx1=place(node, key=""))
        assert error.what == "dgx1 does not let root in"
        assert error.found.count("(ssh-agent): refused") >= 5
        assert "name the right one: `key` in config.toml" in error.next
        with reached(root, {"dgx1": place(node)}) as nodes:
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING, "a key that is named is tried alone"


def test_a_default_key(wire: Rack, root: Path, home: Path) -> None:
    node = wire.nodes[0]
    default = home / ".ssh/id_ed25519"
    default.write_bytes(node.key_file.read_bytes())
    default.chmod(0o600)
    with reached(root, {"dgx1": place(node, key="")}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING


def test_a_port_that_refuses(wire: Rack, root: Path) -> None:
    error = failure(root, dgx1=place(wire.nodes[0], port=2222))
    assert error.what == "dgx1 cannot be reached"
    assert error.where == f"root@{wire.nodes[0].address}:2222"
    assert error.found == "port 2222 refuses: nothing listens there"


def test_a_name_that_cannot_be_resolved(root: Path) -> None:
    error = failure(root, dgx1=place_of_name("no-such-host.invalid"))
    assert "the name 'no-such-host.invalid' cannot be resolved" in error.found
    assert "`address` in config.toml" in error.next


def place_of_name(address: str) -> Any:
    from sparkbuild.nodes.cluster import Place  # noqa: PLC0415

    return Place("ssh", "/srv/x", address=address, user="root")


def test_what_listens_is_no_sshd(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"HTTP/1.0 400 Bad Request\r\n" * 20)

        threading.Thread(target=answer, daemon=True).start()
        given = place_of_name("127.0.0.1")
        port = server.getsockname()[1]
        error = failure(root, dgx1=type(given)("ssh", "/srv/x", address="127.0.0.1", user="root", port=port))
        server.shutdown(socket.SHUT_RDWR)
    assert error.what == "dgx1 does not complete an ssh connection"
    assert "does not talk ssh" in error.found


def test_a_node_that_does_not_answer(wire: Rack, root: Path, home: Path) -> None:
    node = wire.nodes[1]
    (home / ".ssh/config").write_text("Host *\n  ConnectTimeout 1\n")
    node.cut()
    try:
        began = time.monotonic()
        error = failure(root, dgx2=place(node))
        assert time.monotonic() - began < 12
    finally:
        node.heal()
    assert error.what == "dgx2 cannot be reached"
    assert "no answer within 1 s" in error.found or "no route" in error.found


def test_an_sshd_that_is_stuck(wire: Rack, root: Path, home: Path) -> None:
    node = wire.nodes[1]
    (home / ".ssh/config").write_text("Host *\n  ConnectTimeout 2\n")
    node.run(["sh", "-c", "kill -STOP $(cat /run/sshd.pid)"], check=True)
    try:
        began = time.monotonic()
        error = failure(root, dgx2=place(node))
        assert time.monotonic() - began < 12
    finally:
        node.run(["sh", "-c", "kill -CONT $(cat /run/sshd.pid)"], check=True)
    assert error.what == "dgx2 does not complete an ssh connection"
    assert error.found == "it took the connection, and said nothing for 2 s"


CONNECTING = """
import sys, threading
from pathlib import Path
from sparkbuild.core.interrupt import handling
from sparkbuild.nodes.cluster import Nodes, Place
nodes = Nodes(Path("."), {"dgx2": Place("ssh", "/srv/x", address=sys.argv[1], user="root")})
thread = threading.Thread(target=lambda: nodes.agent("dgx2").call("facts", {}), daemon=True)
try:
    with handling():
        thread.start()
        print("begun", flush=True)
        thread.join()
finally:
    nodes.close()
"""


def test_a_stop_while_it_connects(wire: Rack, root: Path) -> None:
    node = wire.nodes[1]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    argv = [sys.executable, "-c", CONNECTING, node.address]
    node.cut()
    try:
        with subprocess.Popen(argv, cwd=root, env=env, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            time.sleep(0.5)
            client.send_signal(signal.SIGINT)
            assert client.wait(timeout=8) == 130
    finally:
        node.heal()


def test_ssh_config(wire: Rack, root: Path, home: Path) -> None:
    node = wire.nodes[0]
    (home / ".ssh/conf.d").mkdir()
    (home / ".ssh/conf.d/rack").write_text(
        f"Host spark-*\n  HostName {node.address}\n  User wrong\n  IdentityFile {node.key_file}\n  IdentitiesOnly yes\n"
    )
    (home / ".ssh/config").write_text("Include conf.d/*\nHost other\n  Port 1\nHost *\n  ConnectTimeout 5\n")
    with reached(root, {"spark-1": place(node, address="", key="")}) as nodes:
        assert nodes.agent("spark-1").call("facts", LOOK) == NOTHING, "config.toml's user wins over that file's"
        assert nodes.address("spark-1") == node.address
        assert nodes.target("spark-1").timeout == 5
    error = failure(root, **{"spark-1": place(node, address="", key="", user="")})
    assert error.where == f"wrong@{node.address}:22"
    (home / ".ssh/config").write_text("Host spark-*\n  Port twenty-two\n")
    error = failure(root, **{"spark-1": place(node, address="", key="")})
    assert error.where == str(home / ".ssh/config")
    assert "twenty-two" in error.found
    (home / ".ssh/config").write_text('Host "spark\n')
    assert failure(root, dgx1=place(node)).what == "the ssh configuration cannot be read"


@pytest.mark.parametrize("how", ["node", "ssh config", pytest.param("address", marks=pytest.mark.long)])
def test_through_another_node(wire: Rack, root: Path, home: Path, how: str) -> None:
    first, second = wire.nodes
    places = {"dgx1": place(first), "dgx2": place(second, jump="dgx1")}
    if how == "ssh config":
        places = {"dgx2": place(second, address="far")}
        (home / ".ssh/config").write_text(
            f"Host far\n  HostName {second.address}\n  ProxyJump near\n"
            f"Host near\n  HostName {first.address}\n  User root\n  IdentityFile {first.key_file}\n"
        )
    elif how == "address":
        places = {"dgx2": place(second, jump=f"root@{first.address}:22")}
        (home / ".ssh/config").write_text(f"Host {first.address}\n  IdentityFile {first.key_file}\n")
    with reached(root, places) as nodes:
        assert nodes.agent("dgx2").call("facts", LOOK) == NOTHING
        peers = second.run(["ss", "-Htn", "state", "established", "sport", "=", ":22"]).out.split()
        assert any(first.address in peer for peer in peers), "its sshd sees the jump host"
        with nodes.door("dgx2", "0.0.0.0", 22) as url:
            assert url.startswith("http://127.0.0.1:")
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as through:
                assert through.recv(7) == b"SSH-2.0"


def test_the_jump_hosts_key_is_checked_too_and_so_is_the_one_behind(wire: Rack, root: Path) -> None:
    first, second = wire.nodes
    places = {"dgx2": place(second, jump="dgx1"), "dgx1": place(first)}
    (root / "known_hosts").write_text(f"{second.address} {second.host_key}\n")
    assert failure(root, **places).what == "the host key of dgx1 is not known"
    (root / "known_hosts").write_text(f"{first.address} {first.host_key}\n")
    error = failure(root, **places)
    assert error.what == "the host key of dgx2 is not known"
    assert error.where == f"root@{second.address}:22, by way of root@{first.address}:22"
    error = failure(workspace(root, wire), dgx2=place(second, jump="dgx1", port=2222), dgx1=place(first))
    assert error.what == f"dgx1 does not lead on to {second.address}:2222"
    error = failure(root, dgx2=place(second, jump="dgx1"), dgx1=place(first, jump="dgx2"))
    assert "round in a circle" in error.what


def test_doors(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    with reached(root, {"dgx1": place(node)}) as nodes:
        with nodes.door("dgx1", "0.0.0.0", 22) as url:  # the direct way is taken where it is open
            assert url == f"http://{node.address}:22"
        with nodes.door("dgx1", "127.0.0.1", 22) as url:
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=5) as through:
                assert through.recv(7) == b"SSH-2.0"
        with nodes.door("dgx1", "127.0.0.1", 9) as url:
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=5) as through:
                assert through.recv(7) == b"", "nobody listens there: it is closed at once"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)


def test_connections_that_come_back(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    with reached(root, {"dgx1": place(node)}) as nodes:
        way = nodes.link_to(nodes.target("dgx1"))

        def answer(channel: Any) -> None:
            channel.sendall(b"from here")
            channel.close()

        port = way.listen(answer)
        script = "import socket, sys; print(socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).recv(9))"
        assert node.run([SYSTEM_PYTHON, "-c", script, str(port)]).out == "b'from here'\n"
        assert f"127.0.0.1:{port}" in node.run(["ss", "-Hltn"]).out, "nobody else reaches it"
        way.unlisten(port)
        assert "refused" in node.run([SYSTEM_PYTHON, "-c", script, str(port)]).err


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead links are noticed within seconds, at both ends."""
    for module, patience in ((link, 2.0), (command, 4.0)):
        monkeypatch.setattr(module, "PULSE", 0.5)
        monkeypatch.setattr(module, "PATIENCE", patience)


@pytest.mark.usefixtures("quick")
def test_a_link_that_is_cut_during_a_call(wire: Rack, root: Path) -> None:
    node = wire.nodes[1]
    endless(node)
    with reached(root, {"dgx2": place(node)}) as nodes:
        threading.Timer(1.0, node.cut).start()
        began = time.monotonic()
        try:
            with pytest.raises(NodeError) as raised:
                nodes.agent("dgx2").call("fetch", ENDLESS)
            assert time.monotonic() - began < 12
            assert agents(node), "it was told nothing"
            wait_for_agents(node, 0)
        finally:
            node.heal()
        assert raised.value.what == "lost the connection to dgx2"
        assert raised.value.where == f"root@{node.address}:22"
        assert nodes.agent("dgx2").call("facts", LOOK) == NOTHING, "the next call connects anew"


@pytest.mark.usefixtures("quick")
def test_a_jump_host_stays_and_the_node_behind_it_is_cut(wire: Rack, root: Path) -> None:
    first, second = wire.nodes
    endless(second)
    with reached(root, {"dgx1": place(first), "dgx2": place(second, jump="dgx1")}) as nodes:
        threading.Timer(1.0, second.cut).start()
        began = time.monotonic()
        try:
            with pytest.raises(NodeError, match="lost the connection to dgx2"):
                nodes.agent("dgx2").call("fetch", ENDLESS)
            assert time.monotonic() - began < 12
            wait_for_agents(second, 0)
            assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
        finally:
            second.heal()


def test_a_quiet_connection_is_not_taken_for_a_dead_one(
    wire: Rack, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.2)
    monkeypatch.setattr(link, "PATIENCE", 1.0)
    with reached(root, {"dgx1": place(wire.nodes[0])}) as nodes:
        nodes.agent("dgx1").call("facts", LOOK)
        made = nodes.link_to(nodes.target("dgx1")).transport()
        time.sleep(3)
        assert made.is_active()
        assert nodes.link_to(nodes.target("dgx1")).transport() is made


@pytest.mark.usefixtures("quick")
def test_power_failure_during_a_call(wire: Rack, root: Path) -> None:
    node = wire.nodes[1]
    endless(node)
    with reached(root, {"dgx2": place(node)}) as nodes:
        failing = threading.Timer(1.0, node.kill)
        failing.start()
        try:
            with pytest.raises(NodeError, match="lost the connection to dgx2"):
                nodes.agent("dgx2").call("fetch", ENDLESS)
        finally:
            failing.join()
            node.boot()


def test_a_stop_of_the_run_ends_the_call_but_not_one_that_cleans_up(
    wire: Rack, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = wire.nodes[0]
    endless(node)
    stop = interrupt.Cancel()
    monkeypatch.setattr("sparkbuild.nodes.rpc.agent.cancel", stop)
    with reached(root, {"dgx1": place(node)}) as nodes:
        nodes.agent("dgx1").call("facts", LOOK)
        made = nodes.link_to(nodes.target("dgx1")).transport()
        threading.Timer(0.7, stop.stop, args=(signal.SIGINT,)).start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            nodes.agent("dgx1").call("fetch", ENDLESS)
        assert time.monotonic() - began < 15
        wait_for_agents(node, 0)
        with pytest.raises(Interrupted):
            nodes.agent("dgx1").call("facts", LOOK)
        assert nodes.agent("dgx1").call("facts", LOOK, final=True) == NOTHING
        assert nodes.link_to(nodes.target("dgx1")).transport() is made, "on the same connection"


CLIENT = """
import sys
from pathlib import Path
from sparkbuild.core.interrupt import handling
from sparkbuild.nodes.cluster import Nodes, Place
from tests.rack.reach import ENDLESS
where, key = sys.argv[1:]
given = Place("ssh", "/srv/sparkbuild", address=where, user="root", key=key, python="/usr/bin/python3")
with handling():
    Nodes(Path("."), {"dgx1": given}).agent("dgx1").call("fetch", ENDLESS)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_agent_ends_with_its_client(wire: Rack, root: Path, number: int) -> None:
    node = wire.nodes[0]
    endless(node)
    argv = [sys.executable, "-c", CLIENT, node.address, str(node.key_file)]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(argv, cwd=root, env=env, stderr=subprocess.PIPE) as client:
        try:
            wait_for("the agent works", lambda: agents(node) or client.poll() is not None)
            assert client.poll() is None
            client.send_signal(number)
            assert client.wait(timeout=5) == (130 if number == signal.SIGINT else -9)
            wait_for_agents(node, 0, timeout=5)
        finally:
            client.kill()


def test_many_calls_at_once(wire: Rack, root: Path) -> None:
    """More than sshd's ten sessions."""
    node = wire.nodes[0]
    with reached(root, {"dgx1": place(node)}) as nodes:
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(nodes.agent("dgx1").call("facts", LOOK))) for _ in range(25)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [NOTHING] * 25


def test_a_login_shell_that_talks(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    node.add_user("chatty")
    node.run(
        [
            "sh",
            "-c",
            "(echo 'echo welcome; echo beware >&2'; cat /home/chatty/.bashrc) > /x; mv /x /home/chatty/.bashrc",
        ]
    )
    with reached(root, {"dgx1": place(node, user="chatty", store="/home/chatty/store")}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING


@pytest.mark.parametrize(
    "shell",
    ["sh", "fish", "csh", *(pytest.param(shell, marks=pytest.mark.long) for shell in ("bash", "zsh", "dash", "tcsh"))],
)
def test_login_shells(wire: Rack, root: Path, shell: str) -> None:
    node = wire.nodes[0]
    path = node.run(["sh", "-c", f"command -v {shell}"]).out.strip()
    if not path:
        pytest.skip(f"there is no {shell} here")
    name = f"of-{shell}"
    node.add_user(name)
    node.run(["usermod", "-s", path, name], check=True)
    with reached(root, {"dgx1": place(node, user=name, store=f'/home/{name}/st\'ore "x"')}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    assert node.path(f'/home/{name}/st\'ore "x"/agent').is_dir()


def test_an_account_that_may_run_nothing(wire: Rack, root: Path) -> None:
    node = wire.nodes[0]
    node.add_user("closed")
    node.run(["usermod", "-s", "/usr/sbin/nologin", "closed"], check=True)
    error = failure(root, dgx1=place(node, user="closed"))
    assert error.what == "the agent on dgx1 ended in the middle of 'start'"
    assert "This account is currently not available." in error.found


@pytest.mark.parametrize("shell", ["sh", "fish", "csh", "zsh"])
def test_every_shell_says_that_there_is_no_python(wire: Rack, root: Path, shell: str) -> None:
    node = wire.nodes[0]
    path = node.run(["sh", "-c", f"command -v {shell}"]).out.strip()
    if not path:
        pytest.skip(f"there is no {shell} here")
    node.add_user(f"no-{shell}")
    node.run(["usermod", "-s", path, f"no-{shell}"], check=True)
    assert failure(root, dgx1=place(node, user=f"no-{shell}", python="python3.99")).what == "dgx1 has no python3.99"


def test_the_python_of_a_node_is_the_systems(wire: Rack, root: Path) -> None:
    with reached(root, {"dgx1": place(wire.nodes[0], python="python3")}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
    assert SYSTEM_PYTHON.endswith("python3")
