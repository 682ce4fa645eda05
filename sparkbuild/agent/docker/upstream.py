"""Blobs and manifests of an image, read from its registry by this node itself, checked by their digests.

Docker pulls; this is for what docker leaves out of a pull (see partload.py). Sources: distribution's spec/api.md and
spec/auth/token.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse

from sparkbuild.agent.wire.protocol import AgentError

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join((*INDEXES, *MANIFESTS))
_TIMEOUT = 60.0  # seconds without a byte
_SMALL = 8 << 20  # bytes of a manifest or a config
_BLOCK = 1 << 20
_FIELD = re.compile(r'(\w+)="([^"]*)"')


class Upstream:
    """The registry of one repository, as docker names it: `ghcr.io/team/engine`, `busybox`. All methods raise
    AgentError (kind "node") when it does not give what it should.
    """

    def __init__(self, repository: str, login: str = "") -> None:
        self.repository = repository
        self._login = _fields_of(login)
        host, slash, path = repository.partition("/")
        if not slash or not ({".", ":"} & set(host) or host == "localhost"):
            host, path = "docker.io", repository if slash else f"library/{repository}"
        self._path = path
        host = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}.get(host, host)
        self._base = f"{_scheme_of(host)}://{host}/v2/{path}"
        self._authorization = ""

    def manifest(self, digest: str) -> bytes:
        """A manifest or an index."""
        return self._small(f"manifests/{digest}", digest)

    def config(self, digest: str) -> bytes:
        """An image's config."""
        return self._small(f"blobs/{digest}", digest)

    def blob(self, digest: str, size: int) -> Iterator[bytes]:
        """A blob in pieces; AgentError at its end when it was something else."""
        found, count = hashlib.sha256(), 0
        try:
            with self._ask(f"blobs/{digest}") as answer:
                while piece := answer.read(_BLOCK):
                    found.update(piece)
                    count += len(piece)
                    if count > size:
                        break
                    yield piece
        except (OSError, HTTPException, ValueError) as error:  # ValueError: no URL, no header's text
            raise self._error(digest, str(error) or type(error).__name__) from None
        if count != size or f"sha256:{found.hexdigest()}" != digest:
            raise self._error(digest, f"{count} bytes of another content, {size} were wanted")

    def _small(self, place: str, digest: str) -> bytes:
        try:
            with self._ask(place) as answer:
                data = answer.read(_SMALL + 1)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: no URL, no header's text
            raise self._error(digest, str(error) or type(error).__name__) from None
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise self._error(digest, "another content than its digest says")
        return data

    def _ask(self, place: str) -> HTTPResponse:
        try:
            return self._open(f"{self._base}/{place}")
        except urllib.error.HTTPError as error:
            if error.code != 401 or self._authorization:
                raise
            self._authorization = self._log_in(error.headers.get("WWW-Authenticate") or "")
            if not self._authorization:
                raise
        return self._open(f"{self._base}/{place}")

    def _open(self, url: str) -> HTTPResponse:
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})  # noqa: S310 - http or https, see above
        if self._authorization:  # not to where a registry sends on: that has an authorization of its own in the URL
            request.add_unredirected_header("Authorization", self._authorization)
        return _answer(request)

    def _log_in(self, challenge: str) -> str:
        """What an Authorization is to say, of the login or of everybody; "" where that is nothing. A login is shown to
        https alone, and to this machine.
        """
        login, kind = self._login, challenge.partition(" ")[0].lower()
        basic = base64.b64encode(f"{login.get('username', '')}:{login.get('password', '')}".encode()).decode()
        named = f"Basic {basic}" if login.get("username") else ""
        if kind == "basic":
            return named
        if kind == "bearer" and login.get("registrytoken"):
            return f"Bearer {login['registrytoken']}"
        fields = dict(_FIELD.findall(challenge))
        realm = fields.get("realm", "")
        if kind != "bearer" or urllib.parse.urlsplit(realm).scheme != _scheme_of(urllib.parse.urlsplit(realm).netloc):
            return ""
        asked = {"scope": fields.get("scope") or f"repository:{self._path}:pull"}
        if "service" in fields:
            asked["service"] = fields["service"]
        if login.get("identitytoken"):
            asked |= {"grant_type": "refresh_token", "client_id": "sparkbuild", "refresh_token": login["identitytoken"]}
            request = urllib.request.Request(realm, urllib.parse.urlencode(asked).encode())  # noqa: S310 - see above
        else:
            request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(asked)}")  # noqa: S310 - see above
            if named:
                request.add_unredirected_header("Authorization", named)
        with _answer(request) as answer:
            try:
                body = json.loads(answer.read(_SMALL))
            except (ValueError, RecursionError):
                return ""
        token = str(body.get("token") or body.get("access_token") or "") if isinstance(body, dict) else ""
        return f"Bearer {token}" if token else ""

    def _error(self, digest: str, found: str) -> AgentError:
        return AgentError(
            "the registry does not give what docker left out of its pull",
            kind="node",
            where=f"{self._base} {digest}",
            found=found,
            next="run again; an image that wants a login can be brought by another node that has it",
        )


def _scheme_of(host: str) -> str:
    """As docker does: only this machine is spoken to without TLS."""
    name = host.partition(":")[0]
    return "http" if name == "localhost" or name.startswith("127.") else "https"


def _fields_of(login: str) -> dict[str, str]:
    """What is in a header X-Registry-Auth, {} for none."""
    try:
        found = json.loads(base64.urlsafe_b64decode(login)) if login else {}
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _answer(request: urllib.request.Request) -> HTTPResponse:
    """The answer to a request whose scheme was looked at. An HTTPError that is raised holds no socket any more."""
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - see above
    except urllib.error.HTTPError as error:
        error.close()
        raise
    return answer
