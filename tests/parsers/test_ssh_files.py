"""What stands in files of ssh: configurations, read here or by OpenSSH, lists of revoked keys, certificates."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from hypothesis import given, strategies as st

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.nodes.ssh import certificates, config, hostkeys, login, openssh, reader, revoked
from tests.parsers.near import bounded, damaged

CONFIG = b"""\
# all
Host dgx1 *.example "dgx2"
    HostName=10.0.0.11
    Port 2222 # no comment
    User operator
    IdentityFile ~/.ssh/id_%h
    ProxyJump gate.example:22,root@[fd00::1]
    Include more
Match host dgx1 user operator
    UserKnownHostsFile /dev/null ~/.ssh/known_%n
    ProxyCommand nc %h %p
    ConnectTimeout 5
Host *
    IdentitiesOnly yes
    IdentityAgent ${SSH_AUTH_SOCK}
"""
ANSWER = b"""\
user operator
hostname 10.0.0.11
port 2222
identityfile ~/.ssh/id_rsa
identityfile ~/.ssh/id_ed25519
proxyjump gate.example,root@[fd00::1]:22
userknownhostsfile /root/.ssh/known_hosts /root/.ssh/known_hosts2
connecttimeout none
addressfamily any
"""
WORDS = st.sampled_from([
    "Host ", "Match ", "all", "exec true", "canonical", "Include ", "Include more", "Include *", "Include ~\0",
    "ProxyJump ", "ProxyCommand none", "Port ", "\u00b2", "9" * 5000, ",a" * 2000, "%", "%%", "%Z", "${",
    "${X}", "~x", '"',
    "\n", "\t", "\0", "\x1f", "=", "!", "[", "*" * 50, "CanonicalizeHostname always", "ConnectTimeout ", "[::1]:", "@",
])  # fmt: skip


@dataclasses.dataclass
class Wanted:
    """A node of config.toml that says nothing."""

    connection: str = "ssh"
    address: str = ""
    user: str = ""
    port: int = 0
    key: str = ""
    jump: str = ""
    host_key: str = ""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a folder for a configuration, and nothing of the machine's."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".ssh").mkdir()
    (folder / ".ssh/more").write_text("Port 22\nInclude more\nInclude config\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setattr(openssh, "SYSTEM", str(folder / "none"))
        yield folder


@st.composite
def texts(draw: st.DrawFn, like: bytes) -> bytes:
    """A text of that kind with damage, and words of the kind somewhere in it."""
    data, at = draw(damaged(like)), draw(st.integers(0, len(like)))
    words = "".join(draw(st.lists(WORDS, max_size=6)))
    return data[:at] + words.encode(errors="surrogateescape") + data[at:]


@given(data=texts(CONFIG))
def test_a_configuration_without_openssh(home: Path, data: bytes) -> None:
    (home / ".ssh/config").write_bytes(data)
    targets = config.Targets({"dgx1": Wanted()})
    with pytest.MonkeyPatch.context() as patch, bounded(SparkbuildError):
        patch.setattr(openssh, "options", lambda *_: None)
        targets.target("dgx1")


@given(data=texts(CONFIG))
def test_a_configuration_of_another_home(home: Path, data: bytes) -> None:
    (home / ".ssh/config").write_bytes(data)
    with bounded(SparkbuildError):
        openssh._foreign_home()


@pytest.mark.usefixtures("home")
@given(data=texts(ANSWER))
def test_what_ssh_makes_of_its_configuration(data: bytes) -> None:
    targets = config.Targets({"dgx1": Wanted()})
    with pytest.MonkeyPatch.context() as patch, bounded(SparkbuildError):
        said = openssh._parsed(data.decode(errors="surrogateescape"))
        patch.setattr(openssh, "options", lambda host, *_: said if host == "dgx1" else {})
        targets.target("dgx1")


@pytest.mark.parametrize("text", ["Include HOME/.ssh/config\n" * 30, "ProxyJump " + ",".join(map(str, range(5000)))])
def test_a_configuration_without_end(home: Path, text: str) -> None:
    """Files that include each other thirty times, eight levels deep; and a way by five thousand servers."""
    (home / ".ssh/config").write_text(text.replace("HOME", str(home)))
    with pytest.MonkeyPatch.context() as patch, bounded():
        patch.setattr(openssh, "options", lambda *_: None)
        with pytest.raises(SparkbuildError):
            config.Targets({"dgx1": Wanted()}).target("dgx1")
        patch.undo()
        if text.startswith("Include"):
            with pytest.raises(SparkbuildError):
                openssh._foreign_home()


def test_the_configuration_is_one_that_can_be_read(home: Path) -> None:
    (home / ".ssh/config").write_bytes(
        CONFIG.replace(b"    Include more\n", b"").replace(b"    ProxyCommand nc %h %p\n", b"")
    )
    assert reader.options("dgx1", "")["hostname"] == ("10.0.0.11",)


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


AUTHORITY = paramiko.ECDSAKey.generate()
_BODY = b"".join([
    _string(b"ssh-ed25519-cert-v01@openssh.com"), _string(bytes(32)), _string(bytes(32)), bytes(8),
    struct.pack(">I", 2), _string(b"dgx1"), _string(_string(b"dgx1")), bytes(8), b"\xff" * 8, _string(b""),
    _string(b""),
    _string(b""), _string(AUTHORITY.asbytes()),
])  # fmt: skip
CERTIFICATE = _BODY + _string(AUTHORITY.sign_ssh_data(_BODY).asbytes())


def test_the_certificate_is_one() -> None:
    assert not certificates.problem(CERTIFICATE, "dgx1", {base64.b64encode(AUTHORITY.asbytes()).decode()})


def test_a_certificate_for_a_million_brackets() -> None:
    """Where a pattern of it is translated in the square of its length."""
    body = _BODY.replace(_string(_string(b"dgx1")), _string(_string(b"[" * 1_000_000)))
    blob = body + _string(AUTHORITY.sign_ssh_data(body).asbytes())
    with bounded():
        assert "it is for [[[" in certificates.problem(blob, "dgx1", {base64.b64encode(AUTHORITY.asbytes()).decode()})


def test_a_certificate_whose_signature_is_of_no_type() -> None:
    blob = _BODY + _string(_string(b"\x97\xff") + _string(b""))
    assert "its signature is wrong" in certificates.problem(
        blob, "dgx1", {base64.b64encode(AUTHORITY.asbytes()).decode()}
    )


@given(
    blob=st.one_of(damaged(CERTIFICATE), damaged(_BODY).map(lambda body: body + CERTIFICATE[len(_BODY) :])),
    authority=damaged(AUTHORITY.asbytes()),
)
def test_a_certificate(blob: bytes, authority: bytes) -> None:
    known = base64.b64encode(authority).decode()
    with bounded(SparkbuildError):
        certificates.problem(blob, "dgx1", {known})
        found = [hostkeys.Entry("@cert-authority", "*", hostkeys.HostKey("ssh-ed25519", known), "x:1")]
        shown = hostkeys.HostKey("ssh-ed25519", base64.b64encode(bytes(32)).decode(), blob)
        hostkeys.judge(shown, "", found, "dgx1")


@given(data=texts(b"# bad\nssh-ed25519 " + base64.b64encode(bytes(51)) + b" x\n"), blob=damaged(CERTIFICATE))
def test_a_list_of_revoked_keys(home: Path, data: bytes, blob: bytes) -> None:
    path = home / "revoked"
    path.write_bytes(data)
    with bounded(SparkbuildError):
        revoked.where(hostkeys.HostKey("ssh-ed25519", base64.b64encode(bytes(32)).decode(), blob), [str(path)])


@given(data=texts(b"ssh-ed25519 " + base64.b64encode(_string(b"ssh-ed25519") + _string(bytes(32))) + b" me@here\n"))
def test_a_public_key(home: Path, data: bytes) -> None:
    path = home / "key.pub"
    path.write_bytes(data)
    with bounded():
        login._public(str(path))
