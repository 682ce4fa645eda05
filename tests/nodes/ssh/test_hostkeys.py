"""What is thought of a host key, from pins and known_hosts lines; and recording one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from pathlib import Path

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh.hostkeys import Entry, HostKey, Opinion, entries, judge, known, pinned, record, types


def key(letter: str, kind: str = "ssh-ed25519") -> HostKey:
    blob = len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x20" + letter.encode() * 32
    return HostKey(kind, base64.b64encode(blob).decode())


A, B, RSA = key("a"), key("b"), key("r", "ssh-rsa")
NAME = "10.0.0.11"


def hashed(name: str, salt: bytes = b"0123456789abcdef0123") -> str:
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("names", "name", "fits"),
    [
        (NAME, NAME, True),
        (f"dgx1,{NAME}", NAME, True),
        ("DGX1", "dgx1", True),
        ("10.0.0.1", NAME, False),
        ("10.0.0.*", NAME, True),
        ("10.0.0.?1", NAME, True),
        ("*,!10.0.0.11", NAME, False),
        ("*,!10.0.0.12", NAME, True),
        ("!10.0.0.12", NAME, False),
        (f"[{NAME}]:2222", f"[{NAME}]:2222", True),
        (f"[{NAME}]:2222", NAME, False),
        (NAME, f"[{NAME}]:2222", False),
        (hashed(NAME), NAME, True),
        (hashed(NAME), "10.0.0.12", False),
        ("|1|junk|junk", NAME, False),
        ("|1|junk", NAME, False),
    ],
)
def test_names(names: str, name: str, fits: bool) -> None:
    assert Entry("", names, A, "x:1").is_of(name) is fits


def entry(one: HostKey, marker: str = "") -> Entry:
    return Entry(marker, NAME, one, "known_hosts:3")


PIN_PLACE = "host_key in config.toml"
TABLE: dict[str, tuple[str, list[Entry], Opinion]] = {
    "nothing is known": ("", [], Opinion("unknown")),
    "known": ("", [entry(B), entry(A)], Opinion("known", (A.fingerprint,), "known_hosts:3")),
    "changed": ("", [entry(B)], Opinion("changed", (f"ssh-ed25519 {B.fingerprint}",), "known_hosts:3")),
    "another type": ("", [entry(RSA)], Opinion("changed", (f"ssh-rsa {RSA.fingerprint}",), "known_hosts:3")),
    "revoked": ("", [entry(A), entry(A, "@revoked")], Opinion("revoked", where="known_hosts:3")),
    "another one was revoked": (
        "",
        [entry(A), entry(B, "@revoked")],
        Opinion("known", (A.fingerprint,), "known_hosts:3"),
    ),
    "only a revoked one": ("", [entry(B, "@revoked")], Opinion("unknown")),
    "pinned": (A.fingerprint, [entry(B)], Opinion("known", (A.fingerprint,), PIN_PLACE, pinned=True)),
    "pinned as a key": (
        f"ssh-ed25519 {A.text} root@dgx1",
        [],
        Opinion("known", (A.fingerprint,), PIN_PLACE, pinned=True),
    ),
    "wrong pin": (B.fingerprint, [entry(A)], Opinion("changed", (B.fingerprint,), PIN_PLACE, pinned=True)),
    "pinned and revoked": (A.fingerprint, [entry(A, "@revoked")], Opinion("revoked", where="known_hosts:3")),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    pin, found, opinion = TABLE[name]
    assert judge(A, pin, found, "dgx1") == opinion


def test_a_pin_that_is_none() -> None:
    for text in ("junk", "ssh-ed25519", "MD5:aa:bb"):
        with pytest.raises(NodeError, match="is no host key"):
            pinned(text)


def test_the_types_that_are_asked_for() -> None:
    assert types("", [entry(RSA), entry(A), entry(B, "@revoked")]) == ["ssh-rsa", "ssh-ed25519"]
    assert types(f"ssh-rsa {RSA.text}", [entry(A)]) == ["ssh-rsa"]
    assert types(A.fingerprint, [entry(RSA)]) == [], "a fingerprint does not say"


def test_lines_that_hold_no_key_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    text = f"# comment\n\n{NAME} ssh-ed25519 junk!\n{NAME}\n"
    text += f"@cert-authority * {A.type} {A.text}\n{NAME} {A.type} {A.text} x\n"
    path.write_bytes(text.encode() + b"\xff\xfe\n")
    assert [(one.marker, one.where) for one in entries(str(path))] == [
        ("@cert-authority", f"{path}:5"),
        ("", f"{path}:6"),
    ]
    authority = Entry("@cert-authority", "*", A, f"{path}:5")
    assert known(NAME, str(path), ()) == [authority, Entry("", NAME, A, f"{path}:6")]
    assert entries(str(tmp_path / "none")) == []
    with pytest.raises(NodeError, match="cannot be read"):
        entries(str(tmp_path))


def test_the_workspaces_own_file_goes_before_the_users(tmp_path: Path) -> None:
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    theirs.write_text(f"{NAME} {B.type} {B.text}\n@revoked * {RSA.type} {RSA.text}\n")
    assert [one.key for one in known(NAME, str(own), [str(theirs)])] == [B, RSA]
    own.write_text(f"{NAME} {A.type} {A.text}\n")
    assert [one.key for one in known(NAME, str(own), [str(theirs)])] == [A, RSA], "revoked is revoked"


def test_record(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    record(str(path), NAME, A)
    assert path.read_text() == f"{NAME} {A.type} {A.text}\n"
    others = f"# mine\ndgx2 {B.type} {B.text}\n@revoked {NAME} {B.type} {B.text}\n10.0.0.* {RSA.type} {RSA.text}"
    path.write_text(
        f"{others}\n{hashed(NAME)} {B.type} {B.text}\ndgx1,{NAME} {B.type} {B.text}\n{NAME} {RSA.type} {RSA.text}\n"
    )
    record(str(path), NAME, A)
    assert path.read_text() == f"{others}\ndgx1 {B.type} {B.text}\n{NAME} {A.type} {A.text}\n"
    assert [one.name for one in tmp_path.iterdir()] == ["known_hosts"]


def test_recording_at_once(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    threads = [threading.Thread(target=record, args=(str(path), f"dgx{i}", A)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.names for one in entries(str(path))) == [f"dgx{i}" for i in range(8)]
