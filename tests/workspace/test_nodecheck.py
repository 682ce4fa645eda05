"""Nodes of config.toml: what their fields mean together."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.load import load

SSH = 'connection = "ssh"\nstore = "/srv/sparkbuild"\n'
BLOB = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + b"k" * 32).decode()


def node(tmp_path: Path, text: str, name: str = "dgx1") -> None:
    (tmp_path / "config.toml").write_text(f"[nodes.{name}]\n{text}")
    load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'address = "10.0.0.11"\nuser = "kim"\nport = 2222\nkey = "~/.ssh/id_ed25519"\njump = "me@dgx2:22"\n',
        f'host_key = "SHA256:{"a" * 43}"\n',
        f'host_key = "ssh-ed25519 {BLOB} root@dgx1"\n',
        'python = "/opt/my python/bin/python3"\ndocker = "/run/user/1000/docker.sock"\noffline = true\n',
    ],
)
def test_good_ones(tmp_path: Path, text: str) -> None:
    node(tmp_path, SSH + text)


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('connection = "ssh"\n', "node `dgx1` has no store", 1),
        ('connection = "ssh"\nstore = "stores/dgx1"\n', "the store of node `dgx1` is a relative path", 3),
        ('connection = "ssh"\nstore = "/"\n', "the store of node `dgx1` would lie among other things", 3),
        ('connection = "ssh"\nstore = "~/store"\n', "the store of node `dgx1` is a relative path", 3),
        (SSH + 'host_key = "aa:bb"\n', "the host key of node `dgx1` is none", 4),
        (SSH + 'host_key = "ssh-ed25519 AAAA"\n', "the host key of node `dgx1` is none", 4),
        (SSH + f'host_key = "ssh-rsa {BLOB}"\n', "the host key of node `dgx1` is none", 4),
        (SSH + 'python = " "\n', "node `dgx1` has no Python", 4),
        (SSH + 'key = "id_ed25519"\n', "the key of node `dgx1` is a relative path", 4),
        (SSH + 'address = "-oProxyCommand=x"\n', "`address` of node `dgx1` cannot be one", 4),
        (SSH + 'address = "10.0.0.12:22"\n', "the address of node `dgx1` is more than one", 4),
        (SSH + 'address = "ops@10.0.0.12"\n', "the address of node `dgx1` is more than one", 4),
        (SSH + 'user = "a b"\n', "`user` of node `dgx1` cannot be one", 4),
        (SSH + 'docker = "unix:///run/docker.sock"\n', "`docker` of node `dgx1` is no absolute path", 4),
        ('store = "x"\nuser = "ops"\n', "`user` says nothing about this machine", 3),
        ('store = "x"\naddress = "ops@10.0.0.11"\n', "the address of node `dgx1` is more than one", 3),
        ('store = "x"\noffline = true\n', "`offline` says nothing about this machine", 3),
    ],
)
def test_bad_ones(tmp_path: Path, text: str, what: str, line: int) -> None:
    with pytest.raises(ConfigError) as raised:
        node(tmp_path, text)
    assert what in raised.value.what
    assert raised.value.where == f"config.toml:{line}"


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("10.0.0.12:22", 'address = "10.0.0.12", port = 22'),
        ("ops@10.0.0.12", 'address = "10.0.0.12", user = "ops"'),
        ("ops@dgx1.lan:2222", 'address = "dgx1.lan", user = "ops", port = 2222'),
        ("[fd00::12]:22", 'address = "fd00::12", port = 22'),
        ("10.0.0.12", ""),
        ("dgx1.lan", ""),
        ("fd00::12", ""),
        ("::1", ""),
    ],
)
def test_an_address_is_a_host_alone(tmp_path: Path, address: str, wanted: str) -> None:
    text = SSH + f'address = "{address}"\n'
    if not wanted:
        node(tmp_path, text)
        return
    with pytest.raises(ConfigError) as raised:
        node(tmp_path, text)
    assert raised.value.wanted == wanted


def test_the_node_local_is_this_machine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the node `local` is this machine"):
        node(tmp_path, SSH, "local")
