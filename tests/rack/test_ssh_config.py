"""What people's ~/.ssh/config names, tried with a real sshd: proxies, certificates, agents, addresses."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.core import child, interrupt
from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import Interrupted
from tests.rack import keys
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.reach import LOOK, NOTHING, place, reached, ssh_agent, workspace
from tests.rack.strict import sshd

pytestmark = pytest.mark.usefixtures("possible")

GONE = "20200101:20200102"


@pytest.fixture(scope="module")
def wire(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """One node without docker."""
    with Rack.up(1, docker=False) as up:
        yield up


@pytest.fixture
def node(wire: Rack) -> Node:
    return wire.nodes[0]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def root(tmp_path: Path, wire: Rack, home: Path) -> Path:  # noqa: ARG001 - a home of its own
    return workspace(tmp_path / "ws", wire)


def works(root: Path, node: Node, **fields: str) -> None:
    with reached(root, {"dgx1": place(node, **fields)}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING


def failure(root: Path, node: Node, **fields: str) -> NodeError:
    with reached(root, {"dgx1": place(node, **fields)}) as nodes, pytest.raises(NodeError) as raised:
        nodes.agent("dgx1").call("facts", LOOK)
    return raised.value


def config(home: Path, *lines: str) -> None:
    (home / ".ssh/config").write_text("\n".join(["Host dgx1", *lines, ""]))


def certify(ca: Path, public: Path, *options: str) -> Path:
    """The certificate beside a public key."""
    argv = ["ssh-keygen", "-q", "-s", str(ca), "-I", "a test", *options, str(public)]
    subprocess.run(argv, check=True, capture_output=True)
    return public.with_name(f"{public.stem}-cert.pub")


# -- ProxyCommand ----------------------------------------------------------------------------------------------------

PIPE = (
    "import os,socket,sys,threading\n"
    "s=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
    "def down():\n"
    " while d:=s.recv(65536): os.write(1,d)\n"
    " os._exit(0)\n"
    "threading.Thread(target=down,daemon=True).start()\n"
    "while d:=os.read(0,65536): s.sendall(d)\n"
)


def test_a_proxy_command(root: Path, home: Path, node: Node, tmp_path: Path) -> None:
    (tmp_path / "pipe.py").write_text(PIPE)
    config(home, f"HostName {node.address}", f"ProxyCommand env V=1 python3 {tmp_path}/pipe.py %h %p")
    with reached(root, {"dgx1": place(node, address="")}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
        assert running(tmp_path)
        with nodes.door("dgx1", "0.0.0.0", 22) as url:
            assert url.startswith("http://127.0.0.1:"), "there may be no direct way"
    wait_for("the program ends with the connection", lambda: not running(tmp_path))


def test_a_proxy_goes_on_when_the_run_is_told_to_stop(
    root: Path, home: Path, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = interrupt.Cancel()
    monkeypatch.setattr("sparkbuild.nodes.rpc.agent.cancel", stop)
    (tmp_path / "pipe.py").write_text(PIPE)
    config(home, f"HostName {node.address}", f"ProxyCommand python3 {tmp_path}/pipe.py %h %p")
    with reached(root, {"dgx1": place(node, address="")}) as nodes:
        assert nodes.agent("dgx1").call("facts", LOOK) == NOTHING
        made = nodes.link_to(nodes.target("dgx1")).transport()
        child._stop_all()
        stop.stop(signal.SIGINT)
        with pytest.raises(Interrupted):
            nodes.agent("dgx1").call("facts", LOOK)
        assert nodes.agent("dgx1").call("facts", LOOK, final=True) == NOTHING, "a lane is taken down over it"
        assert nodes.link_to(nodes.target("dgx1")).transport() is made


def running(folder: Path) -> bool:
    return (
        str(folder / "pipe.py")
        in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    )


def test_a_proxy_command_that_fails(root: Path, home: Path, node: Node) -> None:
    config(home, f"HostName {node.address}", "ProxyCommand sh -c 'echo no way to %h >&2; exit 3'")
    error = failure(root, node, address="")
    assert error.what == "dgx1 cannot be reached by its ProxyCommand"
    assert f"no way to {node.address}\nexit code 3" in error.found
    assert "by ProxyCommand sh -c" in error.where


def test_a_host_that_needs_no_proxy_among_those_that_do(root: Path, home: Path, node: Node) -> None:
    config(home, f"HostName {node.address}", "ProxyCommand none", "Host *", "ProxyJump no-such-host.invalid")
    works(root, node, address="")


# -- certificates of hosts -------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    keys.make(tmp_path / "ca", "ca")
    return tmp_path / "ca"


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_host_certificate(root: Path, home: Path, node: Node, tmp_path: Path, kind: str) -> None:
    for name in ("ca", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / name)], check=True)
    ca, public = tmp_path / "ca", tmp_path / "host.pub"
    (root / "known_hosts").unlink()
    own = home / ".ssh/known_hosts"
    own.write_text(f"@cert-authority 10.*,172.*,192.* {keys.public(ca)}\n")
    for options, problem in (
        (["-h", "-n", f"other,{node.address}"], ""),
        (["-n", node.address], "it is that of a user"),
        (["-h", "-n", "10.1.1.1"], "it is for 10.1.1.1"),
        (["-h"], "it names no host"),
        (["-h", "-n", node.address, "-V", GONE], "it was valid until 2020-01-02"),
    ):
        paper = certify(ca, public, *options)
        for file in (tmp_path / "host", public, paper):
            node.path(f"/srv/{file.name}").write_bytes(file.read_bytes())
            node.path(f"/srv/{file.name}").chmod(0o600)
        with sshd(node, "HostKey /srv/host", "HostCertificate /srv/host-cert.pub"):
            if not problem:
                works(root, node)
                continue
            error = failure(root, node)
        assert problem in error.found
        assert error.what == "the host certificate of dgx1 is not accepted"
    own.write_text(f"@cert-authority * {keys.public(ca)}\n@revoked * {keys.public(ca)}\n")
    certify(ca, public, "-h", "-n", node.address)
    node.path("/srv/host-cert.pub").write_bytes((tmp_path / "host-cert.pub").read_bytes())
    with sshd(node, "HostKey /srv/host", "HostCertificate /srv/host-cert.pub"):
        assert failure(root, node).what == "the host key of dgx1 is not known", "an authority that was revoked is none"
        own.write_text(f"@cert-authority * {node.host_key}\n")
        assert "it is signed by another authority" in failure(root, node).found


@pytest.mark.parametrize("form", ["a list", "a KRL"])
def test_a_key_that_is_revoked_by_the_configuration(
    root: Path, home: Path, node: Node, tmp_path: Path, form: str
) -> None:
    public, bad = tmp_path / "host.pub", tmp_path / "bad"
    public.write_text(f"{node.host_key}\n")
    config(home, f"HostName {node.address}", f"RevokedHostKeys {bad}")
    error = failure(root, node, address="")
    assert "cannot be read" in error.what
    assert (str(bad) in error.where, error.found) == (True, "No such file or directory")
    if form == "a KRL":
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(bad), str(public)], check=True)
    else:
        bad.write_text(f"# gone\n{node.host_key} of the old disk\n")
    error = failure(root, node, address="")
    assert error.what == "the host key of dgx1 was revoked"
    assert str(bad) in error.found
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    other = tmp_path / "other.pub"
    if form == "a KRL":
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(bad), str(other)], check=True)
    else:
        bad.write_bytes(other.read_bytes())
    works(root, node, address="")


# -- certificates and agents of users --------------------------------------------------------------------------------


@pytest.fixture
def trusting(node: Node, authority: Path) -> Iterator[None]:
    """A node that lets in whom the authority names, by no other key."""
    node.path("/srv/ca.pub").write_text(f"{keys.public(authority)}\n")
    with sshd(node, "TrustedUserCAKeys /srv/ca.pub", "AuthorizedKeysFile none"):
        yield


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_users_certificate(root: Path, home: Path, node: Node, authority: Path, kind: str) -> None:
    key = home / ".ssh/mine"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(key)], check=True)
    assert f"{key}: refused" in failure(root, node, key=str(key)).found
    paper = certify(authority, Path(f"{key}.pub"), "-n", "root")
    works(root, node, key=str(key))
    elsewhere = paper.rename(home / "elsewhere.pub")
    config(home, f"HostName {node.address}", f"IdentityFile {key}", "CertificateFile ~/elsewhere.pub")
    works(root, node, address="", key="")
    elsewhere.write_text("junk")
    assert "elsewhere.pub: is no certificate" in failure(root, node, address="", key="").found


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_certificate_in_an_agent_that_the_configuration_names(
    root: Path, home: Path, node: Node, authority: Path, kind: str
) -> None:
    key = authority.with_name("held")
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(key)], check=True)
    certify(authority, authority.with_name("held.pub"), "-n", "root")
    with ssh_agent(home) as env:
        subprocess.run(["ssh-add", "-q", str(key)], env=env, check=True, capture_output=True)
        key.unlink()
        config(home, f"HostName {node.address}", f"IdentityAgent {env['SSH_AUTH_SOCK']}")
        works(root, node, address="", key="")
        subprocess.run(
            ["ssh-add", "-q", "-d", str(authority.with_name("held.pub"))], env=env, check=False, capture_output=True
        )
        if "cert" in subprocess.run(["ssh-add", "-L"], env=env, check=False, capture_output=True, text=True).stdout:
            works(root, node, address="", key="")
    config(home, f"HostName {node.address}", f"IdentityAgent {home}/gone.sock")
    assert f"ssh-agent at {home}/gone.sock: does not answer" in failure(root, node, address="", key="").found


def test_a_key_whose_private_half_is_in_the_agent_alone(
    root: Path, home: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = home / ".ssh/mine.pub"
    public.write_text(Path(f"{node.key_file}.pub").read_text())
    with ssh_agent(home) as env:
        subprocess.run(["ssh-add", "-q", str(node.key_file)], env=env, check=True, capture_output=True)
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        for name in ("mine", "mine.pub"):
            works(root, node, key=str(home / ".ssh" / name))


def test_a_key_with_which_the_agent_does_not_sign_is_passed_over(
    root: Path, home: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner says no when he is asked: the next key is tried, as ssh does."""
    monkeypatch.setenv("SSH_ASKPASS", "false")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.setenv("DISPLAY", ":0")
    with ssh_agent(home) as env:
        subprocess.run(["ssh-add", "-q", "-c", str(node.key_file)], env=env, check=True, capture_output=True)
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        found = failure(root, node, key="").found
        assert "(ssh-agent): the ssh-agent does not sign with it" in found
        own = home / ".ssh/id_ecdsa"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(own)], check=True)
        public = own.with_suffix(".pub").read_bytes()
        node.run(["sh", "-c", "cat >> /root/.ssh/authorized_keys"], text=public, check=True)
        works(root, node, key="")


def test_the_interface_that_is_connected_through(root: Path, home: Path, node: Node) -> None:
    """Through the loopback no way leads to the node; through the interface that leads there, one does."""
    config(home, f"HostName {node.address}", "BindInterface lo")
    assert failure(root, node, address="").what == "dgx1 cannot be reached"
    config(home, f"HostName {node.address}", f"BindInterface {own_interface(node)}")
    works(root, node, address="")
    config(home, f"HostName {node.address}", "BindInterface nosuch0")
    assert failure(root, node, address="").found == "BindInterface nosuch0: No such device"
    config(home, f"HostName {node.address}", "BindAddress 192.0.2.1")
    assert failure(root, node, address="").found.startswith("BindAddress 192.0.2.1: ")


# -- addresses -------------------------------------------------------------------------------------------------------


def test_the_address_and_family_that_are_connected_from(root: Path, home: Path, node: Node) -> None:
    config(home, f"HostName {node.address}", "BindAddress 127.0.0.1")
    assert failure(root, node, address="").what == "dgx1 cannot be reached", "from there no way leads to it"
    config(home, f"HostName {node.address}", "AddressFamily inet6")
    assert "cannot be resolved" in failure(root, node, address="").found
    config(home, f"HostName {node.address}", "AddressFamily inet", f"BindAddress {own_address(node)}")
    works(root, node, address="")


def own_address(node: Node) -> str:
    argv = ["ip", "-o", "route", "get", node.address]
    words = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return words[words.index("src") + 1]


def own_interface(node: Node) -> str:
    argv = ["ip", "-o", "route", "get", node.address]
    words = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return words[words.index("dev") + 1]


def test_where_there_is_no_openssh(root: Path, home: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    config(home, f"HostName {node.address}", f"IdentityFile {node.key_file}", "User root # who else")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "ssh" not in os.listdir(home)
    works(root, node, address="", key="", user="")
