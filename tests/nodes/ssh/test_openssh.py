"""~/.ssh/config as OpenSSH reads it, and as it is read where there is no OpenSSH: the same, or refused by name."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.ssh import openssh
from sparkbuild.nodes.ssh.config import Target, Targets


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(openssh, "SYSTEM", str(tmp_path / "system"))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.fixture(params=["OpenSSH", "without OpenSSH"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "OpenSSH":
        monkeypatch.setattr(openssh, "PROGRAM", "no-such-ssh")
    return str(request.param)


def target(home: Path, text: str | bytes, host: str = "dgx1", **fields: str) -> Target:
    (home / ".ssh/config").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Targets({host: Place("ssh", "/srv/sparkbuild", **fields)}).target(host)  # type: ignore[arg-type]


@pytest.mark.usefixtures("reader")
def test_what_both_read_alike(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", "/keys")
    (home / "system").write_text("Host *\n Port 2200\n HostKeyAlias of-the-system\n")
    found = target(
        home,
        b"# caf\xe9\nHost dgx1\n HostName %h.lan\n User ops # the operators\n ConnectTimeout none\n"
        b" ProxyCommand none\n IdentityFile ${KEYS}/k\n IdentityFile %d/.ssh/z\n CertificateFile ~/c-cert.pub\n"
        b" UserKnownHostsFile %d/known ~/b\n IdentityAgent ~/agent.sock\n BindAddress 127.0.0.1\n AddressFamily inet\n"
        b"Host *\n ProxyJump gate\n",
    )
    assert found.where == "ops@dgx1.lan:2200", "ProxyCommand none came first: there is no jump"
    assert found.keys == ("/keys/k", f"{home}/.ssh/z")
    assert found.certificates == (f"{home}/c-cert.pub",)
    assert found.files[:2] == (f"{home}/known", f"{home}/b")
    assert (found.agent, found.agent_socket) == (True, f"{home}/agent.sock")
    assert (found.bind, found.family, found.timeout) == ("127.0.0.1", socket.AF_INET, 10.0)
    assert found.alias == "of-the-system"


@pytest.mark.usefixtures("reader")
def test_a_proxy_command_and_its_tokens(home: Path) -> None:
    found = target(home, "Host dgx1\n HostName 10.0.0.11\n ProxyCommand nc -n %n %h %p %r %%\n", user="me")
    assert found.proxy == "nc -n dgx1 10.0.0.11 22 me %"
    assert not found.is_direct
    assert target(home, "Host dgx1\n ProxyCommand nc %h %p\n", jump="gate").proxy == "", "config.toml's jump wins"
    with pytest.raises(NodeError, match="%Q in proxycommand is not known"):
        target(home, "Host dgx1\n ProxyCommand nc %Q\n")


@pytest.mark.usefixtures("reader")
def test_a_variable_that_is_not_set(home: Path) -> None:
    with pytest.raises(NodeError, match="names a variable that is not set"):
        target(home, "IdentityFile ${NO_SUCH_VARIABLE}/k\n")


def test_match_as_openssh_does_it(home: Path) -> None:
    text = (
        'Match exec "test %h = dgx1"\n User by-exec\nMatch final all\n Port 2222\n'
        "Match user root host dgx9\n Port 1\nMatch originalhost dgx2\n User of-2\n"
    )
    assert target(home, text).where == "by-exec@dgx1:2222"
    assert target(home, text, "dgx2").where == "of-2@dgx2:2222"
    assert target(home, text, "dgx9", user="root").where == "root@dgx9:1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Match localnetwork 10.0.0.0/8\n User x\n", "Match localnetwork"),
        ("Match tagged x\n User x\n", "Match tagged"),
        ("Match command x\n User x\n", "Match command"),
        ("Match version x\n User x\n", "Match version"),
        ("Match sessiontype exec\n User x\n", "Match sessiontype"),
        ("Match exec true\n User x\n", "Match exec"),
        ("Match final all\n User x\n", "Match final"),
        ("Host dgx1\n CanonicalizeHostname yes\n", "canonicalizehostname"),
        ("Host dgx1\n KnownHostsCommand /bin/x\n", "knownhostscommand"),
        ("Host dgx1\n RevokedHostKeys /x\n", "revokedhostkeys"),
        ("Host dgx1\n ProxyCommand nc %h %p\nHost *\n ProxyJump gate\n", "ProxyJump and ProxyCommand"),
    ],
)
def test_without_openssh_what_is_not_known_is_refused_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, named: str
) -> None:
    monkeypatch.setattr(openssh, "PROGRAM", "no-such-ssh")
    with pytest.raises(NodeError) as raised:
        target(home, text)
    assert "only OpenSSH can answer" in raised.value.what
    assert named in raised.value.found


def test_without_openssh_another_hosts_options_are_nobodys_business(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssh, "PROGRAM", "no-such-ssh")
    assert target(home, "Host other\n Tag x\nHost dgx1\n User me\n ControlMaster auto\n").user == "me"


def test_a_program_that_does_not_answer_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "TIME", 0.5)
    began = time.monotonic()
    with pytest.raises(NodeError) as raised:
        target(home, 'Match exec "sleep 60"\n User x\n')
    assert time.monotonic() - began < 5
    assert "did not end within 0.5 s" in raised.value.found
    assert str(home / ".ssh/config") in raised.value.where


def test_an_openssh_that_is_too_old_is_not_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = home / "old-ssh"
    old.write_text("#!/bin/sh\necho 'ssh: unknown option -- G' >&2\nexit 255\n")
    old.chmod(0o755)
    monkeypatch.setattr(openssh, "PROGRAM", str(old))
    assert target(home, "Host dgx1\n User me\n").user == "me"


def test_nodes_of_this_machine_ask_no_ssh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = home / "asked"
    (home / "bin").mkdir()
    (home / "bin/ssh").write_text(f"#!/bin/sh\ntouch {asked}\nexit 1\n")
    (home / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    places = {"local": Place("local", "store"), "dgx1": Place("ssh", "/srv/sparkbuild")}
    nodes = Nodes(home, places)
    assert nodes.agent("local").call("facts", {"queries": [{"scheme": "room", "paths": []}]})
    assert nodes.address("local") == "127.0.0.1"
    assert not asked.exists(), "a node over ssh that nobody asks for costs nothing"
    with pytest.raises(NodeError, match="ssh configuration cannot be read"):
        nodes.target("dgx1")
    assert asked.exists()
    nodes.close()


def test_files_of_revoked_keys(home: Path) -> None:
    assert target(home, "Host dgx1\n RevokedHostKeys ~/bad\n").revoked == (f"{home}/bad",)
    assert target(home, "Host dgx1\n RevokedHostKeys %d/bad-of-%h\n").revoked == (f"{home}/bad-of-dgx1",)
    assert target(home, "Host dgx1\n RevokedHostKeys none\n").revoked == ()
    assert target(home, "Host dgx2\n RevokedHostKeys ~/bad\n").revoked == ()


def test_a_command_that_knows_hosts_is_refused_by_name(home: Path) -> None:
    with pytest.raises(NodeError, match="KnownHostsCommand is not followed here") as raised:
        target(home, "Host dgx1\n KnownHostsCommand /bin/keys %H\n")
    assert "/bin/keys" in raised.value.found
    target(home, "Host dgx1\n KnownHostsCommand none\n")
    target(home, "Host dgx2\n KnownHostsCommand /bin/keys %H\n")


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("what", ["mode", "owner", "included", "pipe", "folder"])
def test_a_configuration_that_others_may_write_is_not_read(home: Path, what: str) -> None:
    """It names programs that are run: OpenSSH refuses it, whatever HOME says."""
    config, more = home / ".ssh/config", home / ".ssh/more"
    config.write_text("Include more\n" if what == "included" else f"Host *\n ProxyCommand touch {home}/ran\n")
    more.write_text(f"Host *\n ProxyCommand touch {home}/ran\n")
    if what == "owner" and os.geteuid():
        pytest.skip("only root can give a file away")
    if what in {"pipe", "folder"}:
        config.unlink()
        config.mkdir() if what == "folder" else os.mkfifo(config)
    elif what == "owner":
        os.chown(config, 65534, 65534)
    else:
        (more if what == "included" else config).chmod(0o666)
    with pytest.raises(NodeError) as caught:
        Targets({"dgx1": Place("ssh", "/srv/sparkbuild")}).target("dgx1")
    assert "the ssh configuration" in caught.value.what
    assert not (home / "ran").exists()
