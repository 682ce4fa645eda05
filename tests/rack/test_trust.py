"""`doit trust` against real sshds: what it shows, what it asks, and what it writes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rack import keys
from tests.rack.rack import REPOSITORY, Rack
from tests.rack.reach import place

pytestmark = pytest.mark.usefixtures("possible")

DODO = "from sparkbuild.plugin.tasks import *\nDOIT_CONFIG = config()\n"


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(2, docker=False) as up:
        yield up


@pytest.fixture
def space(tmp_path: Path, wire: Rack) -> Path:
    """A workspace with both nodes, dgx2 behind dgx1, and no key known."""
    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (folder / "dodo.py").write_text(DODO)
    configure(folder, wire)
    return folder


def configure(folder: Path, wire: Rack, **of_first: str) -> None:
    lines = []
    for node in wire.nodes:
        given = place(node)
        lines += [f"[nodes.{node.name}]", 'connection = "ssh"', 'store = "/srv/sparkbuild"', 'user = "root"']
        lines += [f'address = "{given.address}"', f'key = "{given.key}"', 'python = "/usr/bin/python3"']
        lines += ['jump = "dgx1"'] if node.name == "dgx2" else [f'{name} = "{text}"' for name, text in of_first.items()]
    (folder / "config.toml").write_text("\n".join(lines) + "\n")


def environment(space: Path) -> dict[str, str]:
    env = {**os.environ, "HOME": str(space.parent / "home"), "PYTHONPATH": str(REPOSITORY)}
    env.pop("SSH_AUTH_SOCK", None)
    return env


def doit(space: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("doit")), *argv]
    return subprocess.run(
        command,
        cwd=space,
        env=environment(space),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def known(space: Path) -> str:
    path = space / "known_hosts"
    return path.read_text() if path.exists() else ""


def test_an_unknown_key_without_a_terminal(wire: Rack, space: Path) -> None:
    node = wire.nodes[0]
    done = doit(space, "trust", "dgx1")
    assert done.returncode == 3
    assert f"node:    dgx1, root@{node.address}:22" in done.stdout
    assert f"shows:   ssh-ed25519 {node.host_key_fingerprint}" in done.stdout
    assert "known:   not known" in done.stdout
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in done.stdout
    assert f"doit trust dgx1 --fingerprint {node.host_key_fingerprint}" in done.stderr
    assert known(space) == ""


@pytest.mark.parametrize("how", ["--yes", "--fingerprint"])
def test_recording_and_then_using_it(wire: Rack, space: Path, how: str) -> None:
    node = wire.nodes[0]
    given = ["--yes"] if how == "--yes" else ["--fingerprint", node.host_key_fingerprint]
    done = doit(space, "trust", *given, "dgx1")
    assert done.returncode == 0, done.stderr
    assert f"recorded in known_hosts, for {node.address}" in done.stdout
    assert known(space) == f"{node.address} {node.host_key}\n"
    again = doit(space, "trust", "dgx1")
    assert again.returncode == 0
    assert "known:   known, known_hosts:1" in again.stdout
    assert "nothing to record" in again.stdout
    checked = subprocess.run(
        ["ssh-keygen", "-F", node.address, "-f", str(space / "known_hosts")], capture_output=True, check=False
    )
    assert checked.returncode == 0, "OpenSSH reads it as well"


def test_another_fingerprint_than_the_given_one(wire: Rack, space: Path) -> None:
    done = doit(space, "trust", "--fingerprint", wire.nodes[1].host_key_fingerprint, "dgx1")
    assert done.returncode == 3
    assert "dgx1 shows another key than the given one" in done.stderr
    assert known(space) == ""


@pytest.mark.parametrize("answer", ["yes", "no", ""])
def test_asked_on_a_terminal(space: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("doit")), "trust", "dgx1"]
    with subprocess.Popen(
        command, cwd=space, env=environment(space), stdin=theirs, stdout=subprocess.PIPE, text=True
    ) as process:
        os.write(ours, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=20)
    os.close(theirs)
    os.close(ours)
    assert "Type yes to trust it" in out
    assert process.returncode == (0 if answer == "yes" else 1)
    assert (known(space) != "") is (answer == "yes")


def test_a_node_behind_another(wire: Rack, space: Path) -> None:
    first, second = wire.nodes
    done = doit(space, "trust", "--yes", "dgx2")
    assert done.returncode == 3
    assert "the host key of dgx1 is not known" in done.stderr, "the way there is checked"
    assert doit(space, "trust", "--yes", "dgx1").returncode == 0
    done = doit(space, "trust", "--yes", "dgx2")
    assert done.returncode == 0, done.stderr
    assert f"root@{second.address}:22, by way of root@{first.address}:22" in done.stdout
    assert known(space).splitlines() == [f"{first.address} {first.host_key}", f"{second.address} {second.host_key}"]


def test_a_key_that_changed(wire: Rack, space: Path) -> None:
    node, other = wire.nodes
    doit(space, "trust", "--yes", "dgx1")
    before = f"# ours\n{other.address},x {other.host_key}\n{node.address},also-dgx1 {node.host_key}\n"
    (space / "known_hosts").write_text(before)
    old = node.host_key_fingerprint
    node.rotate_host_key()
    done = doit(space, "trust", "dgx1")
    assert done.returncode == 3
    assert "known:   CHANGED, known_hosts:3" in done.stdout
    assert f"was:     ssh-ed25519 {old}" in done.stdout
    assert known(space) == before
    done = doit(space, "trust", "--yes", "dgx1")
    assert done.returncode == 0, done.stderr
    lines = known(space).splitlines()
    assert lines[:2] == before.splitlines()[:2], "of other nodes nothing is changed"
    assert lines[2].startswith("also-dgx1 ")
    assert lines[3:] == [f"{node.address} {node.host_key}"]
    assert list(space.glob("known_hosts*")) == [space / "known_hosts"]


def test_a_pin(wire: Rack, space: Path, tmp_path: Path) -> None:
    node = wire.nodes[0]
    configure(space, wire, host_key=node.host_key_fingerprint)
    done = doit(space, "trust", "dgx1")
    assert done.returncode == 0
    assert "known, host_key in config.toml" in done.stdout
    keys.make(tmp_path / "other", "other")
    configure(space, wire, host_key=keys.public(tmp_path / "other"))
    done = doit(space, "trust", "--yes", "dgx1")
    assert done.returncode == 3
    assert "dgx1 shows another key than the pinned one, and the pin wins" in done.stderr
    assert known(space) == ""


def test_a_key_the_user_knows_already(wire: Rack, space: Path) -> None:
    node = wire.nodes[0]
    theirs = space.parent / "home/.ssh/known_hosts"
    theirs.write_text(f"{node.address} {node.host_key}\n")
    done = doit(space, "trust", "dgx1")
    assert done.returncode == 0
    assert f"known:   known, {theirs}:1" in done.stdout
    assert "recorded in known_hosts" in done.stdout
    theirs.write_text(f"@revoked * {node.host_key}\n")
    done = doit(space, "trust", "--yes", "dgx1")
    assert done.returncode == 3
    assert "was revoked" in done.stderr


def test_the_list_connects_nowhere(wire: Rack, space: Path) -> None:
    for node in wire.nodes:
        node.cut()
    try:
        done = doit(space, "trust")
    finally:
        for node in wire.nodes:
            node.heal()
    first, second = wire.nodes
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "local  this machine, no ssh",
        f"dgx1   root@{first.address}:22: not known; next: doit trust dgx1",
        f"dgx2   root@{second.address}:22, by way of root@{first.address}:22: not known; next: doit trust dgx2",
    ]


def test_what_cannot_be_trusted(space: Path) -> None:
    done = doit(space, "trust", "local")
    assert done.returncode == 3
    assert "local is this machine" in done.stderr
    done = doit(space, "trust", "dgx9")
    assert "there is no node 'dgx9'" in done.stderr
    assert "local, dgx1, dgx2" in done.stderr
    assert "one node at a time" in doit(space, "trust", "dgx1", "dgx2").stderr


def test_a_jump_host_that_is_no_node(wire: Rack, space: Path) -> None:
    first, second = wire.nodes
    text = (space / "config.toml").read_text().replace("[nodes.dgx1]", "[nodes.dgx8]")
    (space / "config.toml").write_text(text.replace('jump = "dgx1"', f'jump = "root@{first.address}"'))
    config = space.parent / "home/.ssh/config"
    config.write_text(f"Host {first.address}\n  IdentityFile {first.key_file}\n")
    done = doit(space, "trust", "dgx2")
    assert f"doit trust {first.address}" in done.stderr
    listed = doit(space, "trust").stdout.splitlines()
    where = f"root@{first.address}:22: not known; next: doit trust {first.address}; jump host"
    assert listed[-1] == f"{first.address}  {where}"
    assert doit(space, "trust", "--yes", first.address).returncode == 0
    done = doit(space, "trust", "--yes", "dgx2")
    assert done.returncode == 0, done.stderr
    assert known(space).splitlines()[-1] == f"{second.address} {second.host_key}"
