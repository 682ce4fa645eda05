"""Where a node of connection `ssh` is: config.toml's fields first, then ~/.ssh/config. Nothing is connected to."""

from __future__ import annotations

import getpass
import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparkbuild.core.errors import NodeError

PORT = 22
TIMEOUT = 10.0  # seconds to connect
_DEPTH = 8  # of Include, and of jumps

_HOP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d+))?/?")


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
    only: bool  # no other keys than these, not even of the agent
    agent: bool  # ask the ssh-agent
    alias: str  # the name its key is known by, if another than host
    files: tuple[str, ...]  # known_hosts files beside the workspace's own
    pin: str
    timeout: float
    via: Target | None

    @property
    def where(self) -> str:
        """`user@host:port`, and the way there."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        text = f"{self.user}@{shown}:{self.port}"
        return f"{text}, by way of {self.via.where}" if self.via else text

    @property
    def known_as(self) -> str:
        """Its name in known_hosts files."""
        name = (self.alias or self.host).lower()
        return name if self.port == PORT or self.alias else f"[{name}]:{self.port}"


class Targets:
    """The ssh servers behind nodes, and those on the way to them. Reads ~/.ssh/config once, when first asked."""

    def __init__(self, places: Mapping[str, Wanted]) -> None:
        self._places = places
        self._config: Any = None
        self._path = os.path.expanduser("~/.ssh/config")

    def target(self, node: str) -> Target:
        """A node's server. NodeError when the ssh configuration does not lead there."""
        place = self._places[node]
        return self._resolve(node, place.address or node, place, ())

    def _resolve(
        self,
        name: str,
        alias: str,
        place: Wanted | None,
        seen: tuple[str, ...],
        *,
        user: str = "",
        port: int = 0,
    ) -> Target:
        if alias in seen or len(seen) >= _DEPTH:
            raise NodeError(
                f"the jump hosts of {name} lead round in a circle",
                found=" -> ".join([*seen, alias]),
                next=f"look at `jump` in config.toml and at ProxyJump in {self._path}",
            )
        found = self._lookup(alias)
        pinned = place.key if place else ""
        keys = (os.path.expanduser(pinned),) if pinned else tuple(found.get("identityfile", ()))
        jump = (place.jump if place else "") or str(found.get("proxyjump", ""))
        if not jump and str(found.get("proxycommand", "none")).lower() != "none":
            raise NodeError(
                f"{name} is reached by a ProxyCommand, which sparkbuild does not run",
                where=self._path,
                found=str(found["proxycommand"]),
                wanted="ProxyJump in that file, or `jump` in config.toml",
            )
        return Target(
            name=name,
            host=str(found.get("hostname", alias)).strip("[]"),
            port=port or (place.port if place else 0) or _number(found, "port", PORT, self._path),
            user=user or (place.user if place else "") or str(found.get("user", "")) or _me(),
            keys=keys,
            only=bool(pinned) or str(found.get("identitiesonly", "no")).lower() == "yes",
            agent=str(found.get("identityagent", "")).lower() != "none",
            alias=str(found.get("hostkeyalias", "")),
            files=_files(found, "userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
            + _files(found, "globalknownhostsfile", "/etc/ssh/ssh_known_hosts"),
            pin=place.host_key if place else "",
            timeout=float(_number(found, "connecttimeout", int(TIMEOUT), self._path)),
            via=self._way(jump, name, (*seen, alias)) if jump and jump.lower() != "none" else None,
        )

    def _way(self, jump: str, name: str, seen: tuple[str, ...]) -> Target:
        """The last of the jump hosts "a,b": each is reached by way of the one before."""
        *before, last = [piece.strip() for piece in jump.split(",")]
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
        first = self._way(",".join(before), name, seen)
        return Target(**{**found.__dict__, "via": first})

    def _lookup(self, host: str) -> dict[str, Any]:
        if self._config is None:
            text = _expanded(self._path, 0)
            if not text.strip():
                self._config = ()
            else:
                from paramiko import SSHConfig  # noqa: PLC0415 - 110 ms, only where there is a file

                self._config = self._tried(lambda: SSHConfig.from_text(text))
        return dict(self._tried(lambda: self._config.lookup(host))) if self._config != () else {}

    def _tried(self, read: Any) -> Any:
        try:
            return read()
        except Exception as error:  # the parser raises whatever its lines make it stumble over
            raise NodeError(
                "the ssh configuration cannot be read",
                where=self._path,
                found=str(error) or type(error).__name__,
                next=f"mend that file; `ssh -G -F {self._path} x` shows what OpenSSH makes of it",
            ) from error


def _expanded(path: str, depth: int, block: str = "Host *") -> str:
    """The text of a configuration with its Include lines replaced by what they name; paramiko leaves them out. Lines
    after an Include belong to the block that they stood in, not to the last one of the included file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise NodeError("the ssh configuration cannot be read", where=path, found=str(error)) from error
    out = []
    for line in lines:
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in {"host", "match"}:
            block = line.strip()
        if word.lower() != "include" or depth >= _DEPTH:
            out.append(line)
            continue
        for pattern in rest.replace('"', " ").split():
            full = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(pattern))
            out += [_expanded(one, depth + 1, block) for one in sorted(glob.glob(full))]
        out.append(block)
    return "\n".join(out) + "\n"


def _files(found: Mapping[str, Any], option: str, default: str) -> tuple[str, ...]:
    value = found.get(option, default)
    words = value if isinstance(value, list) else str(value).split()
    return tuple(os.path.expanduser(word.strip('"')) for word in words if word != "none")


def _number(found: Mapping[str, Any], option: str, default: int, path: str) -> int:
    text = str(found.get(option, default))
    if not text.isdigit() or int(text) == 0:
        raise NodeError(f"{option} is no number", where=path, found=text)
    return int(text)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "root"
