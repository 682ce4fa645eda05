"""Who listens for this machine alone, by the kernel's tables of real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkbuild.agent.machine import logins, sockets
from sparkbuild.agent.machine.procs import Glance
from sparkbuild.agent.machine.sockets import Listener, unpacked


@contextmanager
def listening(*hosts: str) -> Iterator[int]:
    """On one port, with every one of the addresses."""
    port, opened = 0, []
    try:
        for host in hosts:
            one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            opened.append(one)
            if ":" in host:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((host, port))
            one.listen()
            port = one.getsockname()[1]
        yield port
    finally:
        for one in opened:
            one.close()


@pytest.mark.parametrize(
    ("hosts", "alone"),
    [
        (("127.0.0.1",), True),
        (("127.0.0.2",), True),
        (("127.0.0.1", "127.0.0.3"), True),
        (("0.0.0.0",), False),
        (("::1",), True),
        (("::",), False),
        (("127.0.0.1", "::"), False),
    ],
)
def test_by_the_kernel(hosts: tuple[str, ...], alone: bool) -> None:
    if any(":" in host for host in hosts) and not socket.has_dualstack_ipv6():
        hosts, alone = ("127.0.0.1",), True
    with listening(*hosts) as port:
        assert Glance().is_loopback_alone(port) is alone
    assert Glance().is_loopback_alone(port) is False, "nobody does"


@pytest.mark.parametrize("hosts", [("127.0.0.2",), ("0.0.0.0",), ("127.0.0.1", "::1"), ("::",)])
def test_both_ways_of_the_kernel(hosts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """By sock_diag, and by the tables where a kernel or a sandbox does not know that."""
    if any(":" in host for host in hosts) and not socket.has_dualstack_ipv6():
        hosts = ("127.0.0.1",)

    def addresses(port: int) -> list[str]:
        return sorted(listener.address for listener in Glance().listening()[port])

    with listening(*hosts) as port:
        inodes = Glance().inodes(port)
        assert addresses(port) == sorted(hosts)
        monkeypatch.setattr(sockets, "_SOCK_DIAG", 31)  # a protocol that no kernel has
        with pytest.raises(OSError):
            sockets.by_diag(socket.AF_INET)
        assert addresses(port) == sorted(hosts)
        assert Glance().inodes(port) == inodes != set()


@pytest.mark.parametrize(
    ("row", "is_it"),
    [
        ("0100007F", True),
        ("00000000", False),
        ("0B00000A", False),
        ("0000000000000000FFFF00000100007F", True),
        ("B80D012000000000000000000000007F", False),
    ],
)
def test_rows_of_a_little_endian_machine(row: str, is_it: bool) -> None:
    assert Listener(0, unpacked(row)).loopback is is_it


@pytest.mark.parametrize(
    ("kills", "excluded", "says"),
    [
        ("b true\n", 'as 1 "root"\n', "KillExcludeUsers=root ann in /etc/systemd/logind.conf"),
        ("b false\n", 'as 1 "root"\n', ""),
        ("b true\n", 'as 2 "root" "ann"\n', ""),
        ("", "", ""),
    ],
)
def test_what_logind_ends_with_the_login(kills: str, excluded: str, says: str) -> None:
    told = logins.told(kills, excluded, "ann")
    assert (says in told) if says else told == ""


def test_who_is_in_no_session_of_logind_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "output_of", lambda argv, _: "b true" if argv[-1] == "KillUserProcesses" else "as 0")
    monkeypatch.setattr(logins, "text", lambda _path: "0::/system.slice/cron.service\n")
    assert logins.ends_with_login() == ""
    monkeypatch.setattr(logins, "text", lambda _path: "0::/user.slice/user-1000.slice/session-4.scope\n")
    assert "KillUserProcesses=yes" in logins.ends_with_login()
