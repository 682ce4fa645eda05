"""Which ssh server a node is: config.toml's fields, then ~/.ssh/config."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.ssh.config import Target, Targets

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh/config"


def target(**fields: Any) -> Target:
    return Targets({"dgx1": Place("ssh", "/srv/sparkbuild", **fields)}).target("dgx1")


def test_without_anything() -> None:
    found = target()
    assert (found.where, found.keys, found.only, found.agent) == (f"{ME}@dgx1:22", (), False, True)
    assert found.known_as == "dgx1"


def test_the_file_fills_in_what_config_toml_leaves_open(config: Path, tmp_path: Path) -> None:
    config.write_text(
        "Host dgx*\n HostName 10.0.0.11\n User root\n Port 2222\n IdentityFile ~/.ssh/one\n IdentityFile /etc/two\n"
        " UserKnownHostsFile ~/a ~/b\n IdentitiesOnly yes\n IdentityAgent none\n ConnectTimeout 3\n"
    )
    found = target()
    assert found.where == "root@10.0.0.11:2222"
    assert found.known_as == "[10.0.0.11]:2222"
    assert found.keys == (f"{tmp_path}/.ssh/one", "/etc/two")
    assert (found.only, found.agent, found.timeout) == (True, False, 3.0)
    assert found.files[:3] == (f"{tmp_path}/a", f"{tmp_path}/b", "/etc/ssh/ssh_known_hosts")
    mine = target(address="dgx-1", user="me", port=22, key="~/mine")
    assert (mine.where, mine.keys, mine.only) == ("me@10.0.0.11:22", (f"{tmp_path}/mine",), True)


def test_a_host_key_alias(config: Path) -> None:
    config.write_text("Host *\n HostKeyAlias Spark\n Port 2222\n")
    assert target().known_as == "spark"


def test_include(config: Path, tmp_path: Path) -> None:
    (tmp_path / ".ssh/d").mkdir()
    (tmp_path / ".ssh/d/one").write_text("Host dgx1\n HostName 10.0.0.1\nHost other\n User wrong\n")
    config.write_text("Include d/*\nPort 2222\nHost dgx1\n Include d/none\n User root\n")
    assert target().where == "root@10.0.0.1:2222", "what follows belongs to the block around the Include"


@pytest.mark.parametrize(
    ("jump", "where"),
    [
        ("gate", f"{ME}@dgx1:22, by way of {ME}@gate:22"),
        ("me@gate:2222", f"{ME}@dgx1:22, by way of me@gate:2222"),
        ("ssh://me@gate:2222", f"{ME}@dgx1:22, by way of me@gate:2222"),
        ("[fe80::1]:2222", f"{ME}@dgx1:22, by way of {ME}@[fe80::1]:2222"),
        ("a,b", f"{ME}@dgx1:22, by way of {ME}@b:22, by way of {ME}@a:22"),
        ("none", f"{ME}@dgx1:22"),
        ("dgx2", f"{ME}@dgx1:22, by way of root@10.0.0.12:22"),
        ("local", f"{ME}@dgx1:22, by way of {ME}@local:22"),
    ],
)
def test_jumps(jump: str, where: str, config: Path) -> None:
    places = {
        "dgx1": Place("ssh", "/s", jump=jump),
        "dgx2": Place("ssh", "/s", address="10.0.0.12", user="root"),
        "local": Place("local", "s"),
    }
    assert Targets(places).target("dgx1").where == where
    config.write_text(f"Host dgx1\n ProxyJump {jump}\n")
    places["dgx1"] = Place("ssh", "/s")
    assert Targets(places).target("dgx1").where == where


def test_a_node_and_a_jump_host_are_one_server() -> None:
    places = {"dgx1": Place("ssh", "/s", jump="dgx2"), "dgx2": Place("ssh", "/s", address="10.0.0.12")}
    targets = Targets(places)
    assert targets.target("dgx1").via == targets.target("dgx2")


@pytest.mark.parametrize(
    ("text", "fields", "what"),
    [
        ("Host dgx1\n ProxyJump a\nHost a\n ProxyJump dgx1\n", {}, "lead round in a circle"),
        ("", {"jump": "a b@"}, "names no jump host"),
        ("Host dgx1\n Port x\n", {}, "ssh configuration cannot be read"),
        ('Host "dgx1\n', {}, "ssh configuration cannot be read"),
        ("nonsense\n", {}, "ssh configuration cannot be read"),
    ],
)
def test_what_leads_nowhere(config: Path, text: str, fields: dict[str, Any], what: str) -> None:
    config.write_text(text)
    with pytest.raises(NodeError, match=what):
        target(**fields)


def test_this_machine_has_the_address_that_it_is_given(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, {"local": Place("local", "s"), "here": Place("local", "s", address="10.0.0.11")})
    assert [nodes.address(name) for name in nodes.names] == ["127.0.0.1", "10.0.0.11"]


def test_addresses_and_doors(tmp_path: Path, config: Path) -> None:
    config.write_text("Host far\n HostName 127.0.0.7\n")
    places = {"local": Place("local", "s"), "dgx1": Place("ssh", "/s", address="far")}
    nodes = Nodes(tmp_path, places)
    assert [nodes.address(name) for name in nodes.names] == ["127.0.0.1", "127.0.0.7"]
    for host, url in (
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("10.0.0.1", "http://10.0.0.1:80"),
        ("::1", "http://[::1]:80"),
    ):
        with nodes.door("local", host, 80) as found:
            assert found == url
    with socket.create_server(("127.0.0.7", 0)) as server:
        port = server.getsockname()[1]
        with nodes.door("dgx1", "0.0.0.0", port) as found:
            assert found == f"http://127.0.0.7:{port}", "it answers from here: nothing is carried"
    with pytest.raises(NodeError, match="there is no node 'dgx9'"):
        nodes.agent("dgx9")
