"""The operator's logins for registries, as docker keeps them: ~/.docker/config.json, or the one in $DOCKER_CONFIG.

Read when a registry asks for a login or a node is to pull, and never written anywhere. The form is that of docker/cli
(config/configfile, credential helpers); as there, a helper of the registry comes before the store of all, and that
before what stands in the file itself.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparkbuild.core import child
from sparkbuild.core.errors import ConfigError, SparkbuildError, UpstreamError
from sparkbuild.workspace.locks.baseimage import BaseImage
from sparkbuild.workspace.locks.reference import Reference

HUB = "https://index.docker.io/v1/"  # docker's name for its own registry in that file
_HUB_HOSTS = {"docker.io", "index.docker.io", "registry-1.docker.io"}
_LIMIT = 1 << 20
_HELPER = re.compile(r"[A-Za-z0-9._-]+")
_TOKEN_NAME = "<token>"  # noqa: S105 - what a helper gives for the name of somebody who has a token


class Login(NamedTuple):
    """What a registry is given: a name with a password, or a token to get tokens by (`identity`), or one to show
    (`bearer`). Its text has none of it.
    """

    host: str
    name: str = ""
    password: str = ""
    identity: str = ""
    bearer: str = ""

    def __repr__(self) -> str:
        return f"Login({self.host})"

    @property
    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.name}:{self.password}".encode()).decode()

    def for_docker(self) -> str:
        """The value of docker's header X-Registry-Auth (api/types/registry/authconfig.go)."""
        fields = {"username": self.name, "password": self.password, "identitytoken": self.identity}
        fields |= {"registrytoken": self.bearer, "serveraddress": HUB if self.host in _HUB_HOSTS else self.host}
        text = json.dumps({name: value for name, value in fields.items() if value})
        return base64.urlsafe_b64encode(text.encode()).decode()


def place() -> Path:
    """The file, as docker finds it."""
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def login_of(host: str) -> Login | None:
    """The login for a registry, None where there is none: everybody may ask then. `host` is "" for docker's own.

    Raises ConfigError for a file or an answer of a helper that cannot be read.
    """
    host = host or "docker.io"
    config = _read(place())
    for name in _names(host):
        helper = _table(config, "credHelpers").get(name)
        if helper:
            return _of_helper(str(helper), name, host)
    if config.get("credsStore"):
        for name in _names(host):
            login = _of_helper(str(config["credsStore"]), name, host)
            if login is not None:
                return login
    auths = _table(config, "auths")
    return next((login for name in _names(host) if (login := _of_entry(auths.get(name), host)) is not None), None)


def login_for(image: Reference | BaseImage) -> str:
    """The operator's login for the registry of an image, as the agent hands it to docker; "" where there is none, or it
    cannot be read: most images are for everybody, and of others the registry said so before (see Registry).
    """
    try:
        login = login_of(image.host)
    except SparkbuildError:
        return ""
    return login.for_docker() if login is not None else ""


def _names(host: str) -> Iterator[str]:
    """How that file may call a registry."""
    if host in _HUB_HOSTS:
        yield HUB
        host = "docker.io"
    yield host
    for scheme in ("https", "http"):
        yield from (f"{scheme}://{host}{end}" for end in ("", "/", "/v1/", "/v2/"))


def _read(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            config = json.loads(file.read(_LIMIT))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            "docker's file of logins cannot be read",
            where=str(path),
            found=error.strerror or str(error) if isinstance(error, OSError) else "it is not JSON",
            next="mend it, or write it anew by `docker login`",
        ) from None  # the error holds the text
    return config if isinstance(config, dict) else {}


def _table(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = config.get(name)
    return table if isinstance(table, dict) else {}


def _of_entry(entry: object, host: str) -> Login | None:
    if not isinstance(entry, dict):
        return None
    fields = {name: str(value) for name, value in entry.items() if isinstance(value, str) and value}
    name, password = fields.get("username", ""), fields.get("password", "")
    if "auth" in fields:
        try:
            name, _, password = base64.b64decode(fields["auth"], validate=True).decode().partition(":")
        except ValueError:  # of base64, of UTF-8, and of an `auth` that is no ASCII
            what = f"the login for {host} is not what `docker login` writes"
            raise ConfigError(what, where=str(place()), next=f"docker login {host}") from None
    login = Login(host, name, password.rstrip("\0"), fields.get("identitytoken", ""), fields.get("registrytoken", ""))
    return login if any(login[1:]) else None


def _of_helper(helper: str, name: str, host: str) -> Login | None:
    """Ask docker-credential-<helper>, as docker does: the registry's name on stdin, JSON on stdout."""
    program = f"docker-credential-{helper}"
    where = f"{place()}: {program}"
    if not _HELPER.fullmatch(helper):
        raise ConfigError("the name of a credential helper cannot be used", where=str(place()), found=repr(helper[:80]))
    try:
        process = child.spawn(
            [program, "get"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        what = f"the credential helper for {host} cannot be run"
        raise ConfigError(what, where=where, found=error.strerror or str(error), next=f"install {program}") from error
    said = b""
    try:
        if process.stdin and process.stdout:
            with suppress(BrokenPipeError), process.stdin as pipe:  # one that asks nothing says something all the same
                pipe.write(name.encode())
            with process.stdout as pipe:
                said = pipe.read(_LIMIT)
    finally:
        code = child.reap(process)
    if code:
        if b"not found" in said:
            return None
        raise UpstreamError(f"the credential helper for {host} gives no login", where=where, found=f"exit code {code}")
    try:
        answer = json.loads(said)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"the credential helper for {host} gives no login", where=where, found="no JSON") from None
    return Login(host, identity=secret) if user == _TOKEN_NAME else Login(host, user, secret)
