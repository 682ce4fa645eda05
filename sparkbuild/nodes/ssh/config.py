"""Where a node of connection `ssh` is: config.toml's fields first, then what OpenSSH would do. Nothing is connected
to.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import openssh, reader
from sparkbuild.nodes.ssh.openssh import Options
from sparkbuild.nodes.ssh.tokens import filled, local_user, path_of, tokens

PORT = 22
TIMEOUT = 10.0  # seconds to connect
_DEPTH = 8  # of jumps

_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@]+)(?::(?P<port>[0-9]{1,5}))?/?")
_NUMBER = re.compile(r"[0-9]{1,5}")  # str.isdigit() takes what int() does not, and int() refuses 5,000 digits
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_KNOWN = {
    "userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
    "globalknownhostsfile": "/etc/ssh/ssh_known_hosts",
}


class Wanted(Protocol):
    """What config.toml says of a node; empty and 0: nothing."""

    @property
    def connection(self) -> str: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def user(self) -> str: ...  # noqa: D102
    @property
    def port(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def jump(self) -> str: ...  # noqa: D102
    @property
    def host_key(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Target:
    """One ssh server. Two of the same kind are one connection, whatever they are called."""

    name: str = field(compare=False)
    host: str
    port: int
    user: str
    keys: tuple[str, ...]  # files that were named; () = the default ones
    certificates: tuple[str, ...]  # files that say who the owners of keys are; beside <key>-cert.pub
    only: bool  # no other keys than these, not even of the agent
    agent: bool  # ask the ssh-agent
    agent_socket: str  # where it listens; "" = where SSH_AUTH_SOCK says
    alias: str  # the name its key is known by, if another than host
    files: tuple[str, ...]  # known_hosts files beside the workspace's own
    revoked: tuple[str, ...]  # files of keys that count for nothing
    pin: str
    timeout: float
    via: Target | None
    proxy: str = ""  # the shell command whose stdin and stdout are the connection
    family: int = socket.AF_UNSPEC
    bind: str = ""  # the address here that is connected from
    interface: str = ""  # the interface here that is connected through

    @property
    def where(self) -> str:
        """`user@host:port`, and the way there."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        text = f"{self.user}@{shown}:{self.port}"
        if self.proxy:
            return f"{text}, by ProxyCommand {self.proxy}"
        return f"{text}, by way of {self.via.where}" if self.via else text

    @property
    def is_direct(self) -> bool:
        """Whether it is connected to from here, without anybody in between."""
        return self.via is None and not self.proxy

    @property
    def known_as(self) -> str:
        """Its name in known_hosts files."""
        name = (self.alias or self.host).lower()
        return name if self.port == PORT or self.alias else f"[{name}]:{self.port}"


class Targets:
    """The ssh servers behind nodes, and those on the way to them. OpenSSH is asked once for each, when it is wanted
    first; any number of threads may want one.
    """

    def __init__(self, places: Mapping[str, Wanted]) -> None:
        self._places = places
        self._said: dict[tuple[str, str, int], Options] = {}

    def target(self, node: str) -> Target:
        """A node's server. NodeError when the ssh configuration does not lead there."""
        place = self._places[node]
        return self._resolve(node, place.address or node, place, ())

    def _resolve(
        self,
        name: str,
        original: str,
        place: Wanted | None,
        seen: tuple[str, ...],
        *,
        user: str = "",
        port: int = 0,
    ) -> Target:
        where = openssh.user_file()
        if original in seen or len(seen) >= _DEPTH:
            raise NodeError(
                f"the jump hosts of {name} lead round in a circle",
                found=" -> ".join([*seen, original]),
                next=f"look at `jump` in config.toml and at ProxyJump in {where}",
            )
        said = self._options(original, user or (place.user if place else ""), port or (place.port if place else 0))
        _refuse_unknown(said, where)
        pinned = place.key if place else ""
        jump = (place.jump if place else "") or _one(said, "proxyjump")
        proxy = "" if jump else _one(said, "proxycommand")
        jump = "" if jump.lower() == "none" else jump
        host = _one(said, "hostname") or original
        login = user or (place.user if place else "") or _one(said, "user") or local_user()
        number = port or (place.port if place else 0) or _number(said, "port", PORT, where)
        alias = _one(said, "hostkeyalias")
        known = tokens(host=host, original=original, port=number, user=login, jump=jump, alias=alias)

        def paths(option: str, texts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(path_of(text.strip('"'), known, option, where) for text in texts if text.lower() != "none")

        agent = _one(said, "identityagent")
        files = (name for option, default in _KNOWN.items()
                 for name in paths(option, tuple((_one(said, option) or default).split())))  # fmt: skip
        return Target(
            name=name,
            host=host.strip("[]"),
            port=number,
            user=login,
            keys=(os.path.expanduser(pinned),) if pinned else paths("identityfile", said.get("identityfile", ())),
            certificates=paths("certificatefile", said.get("certificatefile", ())),
            only=bool(pinned) or _one(said, "identitiesonly").lower() == "yes",
            agent=agent.lower() != "none",
            agent_socket="" if agent in {"", "SSH_AUTH_SOCK"} else _socket(agent, known, where),
            alias=alias,
            files=tuple(dict.fromkeys(files)),
            revoked=paths("revokedhostkeys", tuple(_one(said, "revokedhostkeys").split())),
            pin=place.host_key if place else "",
            timeout=float(_number(said, "connecttimeout", int(TIMEOUT), where)),
            via=self._way(jump, name, (*seen, original)) if jump else None,
            proxy="" if proxy.lower() == "none" else filled(proxy, known, "proxycommand", where),
            family=_FAMILIES.get(_one(said, "addressfamily").lower(), socket.AF_UNSPEC),
            bind=_one(said, "bindaddress"),
            interface=_one(said, "bindinterface"),
        )

    def _way(self, jump: str, name: str, seen: tuple[str, ...]) -> Target:
        """The last of the jump hosts "a,b": each is reached by way of the one before."""
        *before, last = [piece.strip() for piece in jump.split(",")]
        if len(before) >= _DEPTH:
            raise NodeError(
                f"more than {_DEPTH} jump hosts, one behind the other", where=f"node {name}", found=jump[:200]
            )
        match = _HOP.fullmatch(last)
        if match is None:
            raise NodeError(f"{jump!r} names no jump host", where=f"node {name}", wanted="[user@]host[:port]")
        host = match["host"].strip("[]")
        place = self._places.get(host)  # a node may be the jump host of others
        if place is not None and place.connection != "ssh":
            place = None
        address = (place.address if place else "") or host
        found = self._resolve(host, address, place, seen, user=match["user"] or "", port=int(match["port"] or 0))
        if not before:
            return found
        return dataclasses.replace(found, via=self._way(",".join(before), name, seen), proxy="")

    def _options(self, host: str, user: str, port: int) -> Options:
        asked = (host, user, port)
        if asked not in self._said:  # two threads may both ask: they hear the same
            said = openssh.options(host, user, port)
            self._said[asked] = reader.options(host, user) if said is None else said
        return self._said[asked]


def _refuse_unknown(said: Options, where: str) -> None:
    """What could say that a key is revoked and is not done here. VerifyHostKeyDNS is none of it: it only ever adds
    trust, and a server whose key is in DNS alone is one whose key is not known.
    """
    command = _one(said, "knownhostscommand")
    if command.lower() not in {"", "none"}:
        raise NodeError(
            "KnownHostsCommand is not followed here, and it may say that a key is revoked",
            where=where,
            found=command,
            wanted="known_hosts files, UserKnownHostsFile or host_key in config.toml",
            next="under `Host` of the node: KnownHostsCommand none",
        )


def _one(said: Options, option: str) -> str:
    return said[option][0] if said.get(option) else ""


def _socket(text: str, known: Mapping[str, str], where: str) -> str:
    """Where the agent listens: a path, or `$NAME`, a variable that holds one."""
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:], "")
    return path_of(text, known, "identityagent", where)


def _number(said: Options, option: str, default: int, where: str) -> int:
    text = _one(said, option)
    if text.lower() in {"", "none", "0"}:
        return default
    if not _NUMBER.fullmatch(text):
        raise NodeError(f"{option} is no number", where=where, found=text[:100], wanted="1 to 99999")
    return int(text)
