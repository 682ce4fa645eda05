"""Logging in: which keys are tried, in which order, and what is said when none of them is taken. Never a password."""

from __future__ import annotations

import base64
import copy
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import paramiko
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import certificates
from sparkbuild.nodes.ssh.config import Target

_DEFAULTS = ("id_ed25519", "id_ecdsa", "id_rsa")
_AGENT = "of the ssh-agent"
AUTH_TIMEOUT = 20.0  # seconds
AGENT_TIMEOUT = 60.0  # seconds


@dataclass
class Tried:
    """What became of each key, for the message."""

    refused: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)  # files with a passphrase, whose key no agent has
    unusable: list[str] = field(default_factory=list)
    agent: str = ""

    def lines(self) -> list[str]:
        """One line each."""
        lines = [f"{shown}: refused" for shown in self.refused]
        lines += [f"{path}: has a passphrase, and no ssh-agent holds it" for path in self.locked]
        lines += self.unusable
        return [*lines, self.agent] if self.agent else lines


def log_in(transport: paramiko.Transport, target: Target) -> None:
    """Authenticate on a transport whose host key was checked. NodeError, with all that was tried, when that fails."""
    tried = Tried()
    agent = _agent(target, tried)
    try:
        _try_keys(transport, target, tried, _held(agent))
    finally:
        if agent is not None:
            agent.close()


def _try_keys(transport: paramiko.Transport, target: Target, tried: Tried, held: Mapping[bytes, AgentKey]) -> None:
    for shown, key in _keys(target, tried, held):
        try:
            left = transport.auth_publickey(target.user, key)
        except paramiko.BadAuthenticationType as error:
            raise _refused(target, tried, f"the server takes no keys: {', '.join(error.allowed_types)}") from error
        except paramiko.AuthenticationException:
            if isinstance(key, _Held) and key.refusal:
                tried.unusable.append(f"{shown}: {key.refusal}")
            else:
                tried.refused.append(shown)
            if not transport.is_active():
                raise _refused(target, tried, "the server ended the connection after that many keys") from None
            continue
        except paramiko.SSHException as error:
            if transport.is_active():  # the key does not fit the server
                tried.unusable.append(f"{shown}: {error}")
                continue
            raise _refused(target, tried, f"the server ended the connection: {error}") from error
        if not left and transport.is_authenticated():
            return
        raise _refused(target, tried, f"the key alone is not enough, the server also wants {', '.join(left)}")
    raise _refused(target, tried, "")


def _keys(target: Target, tried: Tried, held: Mapping[bytes, AgentKey]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Named files, the agent's keys, default files: each key once, with its certificates before it alone. A locked
    file's key is taken from the agent.
    """
    folder = os.path.expanduser("~/.ssh")
    files = target.keys or tuple(os.path.join(folder, name) for name in _DEFAULTS)
    papers = _papers((*target.certificates, *(f"{path}-cert.pub" for path in files)), held, tried)
    seen: set[bytes] = set()
    for shown, key in _plain(target, files, held, tried):
        plain = key.asbytes()
        if plain not in seen:
            seen.add(plain)
            for paper in papers:
                if paper.key == plain:
                    yield f"{shown}, certificate {paper.shown}", _certified(key, paper)
            yield shown, key
    for paper in papers:  # those whose key is nowhere but behind them, in the agent
        if paper.key not in seen and paper.blob in held and not (target.only and paper.shown == _AGENT):
            yield f"certificate {paper.shown}", _certified(held[paper.blob], paper)


def _plain(
    target: Target, files: Iterable[str], held: Mapping[bytes, AgentKey], tried: Tried
) -> Iterator[tuple[str, paramiko.PKey]]:
    """The keys without certificates, in the order in which they are tried; some of them twice."""
    from_files = (one for path in files for one in _from_file(path, held, tried, named=bool(target.keys)))
    from_agent: list[tuple[str, paramiko.PKey]] = []
    if not target.only:
        keys = [key for blob, key in held.items() if not _is_certificate(blob)]
        from_agent = [(f"{key.comment or key.get_name()} (ssh-agent)", key) for key in keys]
    if target.keys:
        yield from from_files
        yield from from_agent
    else:
        yield from from_agent
        yield from from_files


class _Paper(NamedTuple):
    """A user's certificate: of which key, and where it was found."""

    shown: str
    key: bytes
    blob: bytes


def _papers(paths: Iterable[str], held: Mapping[bytes, AgentKey], tried: Tried) -> list[_Paper]:
    """The certificates of files and of the agent. A file that is named and is none is told of."""
    found = [(path, _public(path)) for path in paths if os.path.exists(path)]
    found += [(_AGENT, blob) for blob in held if _is_certificate(blob)]
    papers = []
    for shown, blob in found:
        try:
            papers.append(_Paper(shown, certificates.parsed(blob).key, blob))
        except (ValueError, paramiko.SSHException, IndexError):
            tried.unusable.append(f"{shown}: is no certificate")
    return papers


def _is_certificate(blob: bytes) -> bool:
    """Whether a public key is in a certificate."""
    return certificates.type_of(blob).endswith(certificates.SUFFIX)


class _Held(AgentKey):
    """A key of the agent. `refusal`: why the agent would not sign with it, "" when it did."""

    refusal = ""

    def sign_ssh_data(self, data: Any, algorithm: str | None = None) -> Any:
        """As paramiko's, which raises when its owner says no: in the thread of the connection, which ends with it, and
        no other key can be tried. So the server gets a signature that is none, and goes on to the next key.
        """
        try:
            return super().sign_ssh_data(data, algorithm)
        except (paramiko.SSHException, OSError, EOFError, struct.error) as error:
            self.refusal = "the ssh-agent does not sign with it"
            self.refusal += ": no answer in time" if isinstance(error, TimeoutError) else ""
            nothing = paramiko.Message()
            nothing.add_string(algorithm or self.get_name())
            nothing.add_string(b"")
            return nothing.asbytes()


class _HeldPaper(_Held):
    """A key asked for by what the agent calls it: a certificate, where it has the key only as that."""

    def asbytes(self) -> bytes:
        """As paramiko's, which asks for the key behind a certificate of RSA."""
        blob: bytes = self.blob
        return blob


def _held(agent: _Agent | None) -> dict[bytes, AgentKey]:
    """The keys of an agent, by what it calls them."""
    keys = agent.get_keys() if agent is not None else ()
    return {key.blob: _Held(key.agent, key.blob, key.comment) for key in keys}


def _certified(key: paramiko.PKey, paper: _Paper) -> paramiko.PKey:
    """The same key, shown with a certificate."""
    # a key of an agent hands on all that it lacks, and cannot be copied
    made = _HeldPaper(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
    made.public_blob = PublicBlob(certificates.type_of(paper.blob), paper.blob)
    return made


class _Agent(AgentSSH):  # type: ignore[misc, unused-ignore]
    """The agent that listens at a path. It may ask its owner, for a touch or a passphrase: that is waited for."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(AGENT_TIMEOUT)
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Hang up."""
        self._close()  # type: ignore[attr-defined]


def _agent(target: Target, tried: Tried) -> _Agent | None:
    if not target.agent:
        return None
    path = target.agent_socket or os.environ.get("SSH_AUTH_SOCK", "")
    if not path:
        tried.agent = "ssh-agent: none runs here (SSH_AUTH_SOCK is not set)"
        return None
    try:
        agent = _Agent(path)
    except (paramiko.SSHException, OSError, EOFError, struct.error) as error:
        place = f" at {path}" if target.agent_socket else ""
        tried.agent = f"ssh-agent{place}: does not answer: {error}"
        return None
    tried.agent = "" if agent.get_keys() else "ssh-agent: holds no key"
    return agent


def _from_file(
    path: str, held: Mapping[bytes, AgentKey], tried: Tried, *, named: bool
) -> Iterator[tuple[str, paramiko.PKey]]:
    if not named and not os.path.exists(path):
        return
    public = _public(path) or _public(f"{path}.pub")
    if public in held and (not os.path.exists(path) or _public(path)):
        yield f"{path} (ssh-agent)", held[public]  # only the public half is here
        return
    try:
        key = paramiko.PKey.from_path(path)
        key.public_blob = None  # paramiko takes the certificate beside it, and then never tries the key alone
        yield path, key
    except (TypeError, paramiko.PasswordRequiredException):
        if public in held:
            yield f"{path} (ssh-agent)", held[public]
        else:
            tried.locked.append(path)
    except FileNotFoundError:
        tried.unusable.append(f"{path}: there is no such file")
    except OSError as error:
        tried.unusable.append(f"{path}: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - what the crypto libraries raise for what is no key differs by version
        tried.unusable.append(f"{path}: is no private key that can be used ({type(error).__name__})")


def _public(path: str) -> bytes:
    """The public key, or certificate, of a file in OpenSSH's format; b"" when it holds none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.read(1 << 16).split()
        blob = base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError):
        return b""
    return blob if paramiko.Message(blob).get_binary() == words[0].encode() else b""


def _refused(target: Target, tried: Tried, reason: str) -> NodeError:
    lines = ([reason] if reason else []) + (tried.lines() or ["there was no key to try"])
    if tried.locked:
        advice = "\n".join(f"ssh-add {path}" for path in tried.locked)
    elif "that many keys" in reason:
        advice = "name the right one: `key` in config.toml, or IdentityFile and IdentitiesOnly in ~/.ssh/config"
    else:
        advice = f"check the user, or put a key there: ssh-copy-id -p {target.port} {target.user}@{target.host}"
        advice += "\nthe key file can be set as `key` in config.toml"
    return NodeError(
        f"{target.name} does not let {target.user} in",
        where=target.where,
        found="\n".join(lines),
        wanted=f"a key that {target.user} may log in with",
        next=advice,
    )
