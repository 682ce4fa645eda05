"""Logging in: which keys are tried, in which order, and what is said when none of them is taken. Never a password."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import paramiko

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh.config import Target

_DEFAULTS = ("id_ed25519", "id_ecdsa", "id_rsa")
AUTH_TIMEOUT = 20.0  # seconds


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
        _try_keys(transport, target, tried, {} if agent is None else {key.asbytes(): key for key in agent.get_keys()})
    finally:
        if agent is not None:
            agent.close()


def _try_keys(transport: paramiko.Transport, target: Target, tried: Tried, held: Mapping[bytes, paramiko.PKey]) -> None:
    for shown, key in _keys(target, tried, held):
        try:
            left = transport.auth_publickey(target.user, key)
        except paramiko.BadAuthenticationType as error:
            raise _refused(target, tried, f"the server takes no keys: {', '.join(error.allowed_types)}") from error
        except paramiko.AuthenticationException:
            tried.refused.append(shown)
            if not transport.is_active():
                raise _refused(target, tried, "the server ended the connection after that many keys") from None
            continue
        except paramiko.SSHException as error:
            if transport.is_active():  # the agent would not sign, or the key does not fit the server
                tried.unusable.append(f"{shown}: {error}")
                continue
            raise _refused(target, tried, f"the server ended the connection: {error}") from error
        if not left and transport.is_authenticated():
            return
        raise _refused(target, tried, f"the key alone is not enough, the server also wants {', '.join(left)}")
    raise _refused(target, tried, "")


def _keys(target: Target, tried: Tried, held: Mapping[bytes, paramiko.PKey]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Named files, the agent's keys, default files: each key once. A locked file's key is taken from the agent."""
    folder = os.path.expanduser("~/.ssh")
    defaults = [os.path.join(folder, name) for name in _DEFAULTS]
    seen: set[bytes] = set()
    for path in target.keys or ():
        for shown, key in _from_file(path, held, tried, named=True):
            seen.add(key.asbytes())
            yield shown, key
    if not target.only:
        for blob, key in held.items():
            if blob not in seen:
                seen.add(blob)
                yield f"{getattr(key, 'comment', '') or key.get_name()} (ssh-agent)", key
    if not target.keys:
        for path in defaults:
            for shown, key in _from_file(path, held, tried, named=False):
                if key.asbytes() not in seen:
                    yield shown, key


def _agent(target: Target, tried: Tried) -> paramiko.Agent | None:
    if not target.agent:
        return None
    if not os.environ.get("SSH_AUTH_SOCK"):
        tried.agent = "ssh-agent: none runs here (SSH_AUTH_SOCK is not set)"
        return None
    try:
        agent = paramiko.Agent()
    except (paramiko.SSHException, OSError, EOFError) as error:
        tried.agent = f"ssh-agent: does not answer: {error}"
        return None
    tried.agent = "" if agent.get_keys() else "ssh-agent: holds no key"
    return agent


def _from_file(
    path: str, held: Mapping[bytes, paramiko.PKey], tried: Tried, *, named: bool
) -> Iterator[tuple[str, paramiko.PKey]]:
    if not named and not os.path.exists(path):
        return
    try:
        yield path, paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        public = _public(path)
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
    """The public key beside a private one; b"" when it cannot be had."""
    try:
        with open(f"{path}.pub", encoding="utf-8", errors="replace") as file:
            words = file.read().split()
        return base64.b64decode(words[1])
    except (OSError, ValueError, IndexError):
        return b""


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
