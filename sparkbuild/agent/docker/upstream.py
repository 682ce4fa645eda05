"""Blobs and manifests of an image, read from its registry by this node itself: anonymously, checked by their digests.

Docker pulls; this is for what docker leaves out of a pull (see partload.py). Sources: distribution's spec/api.md and
spec/auth/token.md.
"""

from __future__ import annotations

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

    def __init__(self, repository: str) -> None:
        host, slash, path = repository.partition("/")
        if not slash or not ({".", ":"} & set(host) or host == "localhost"):
            host, path = "docker.io", repository if slash else f"library/{repository}"
        self._path = path
        host = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}.get(host, host)
        name = host.partition(":")[0]
        self._scheme = "http" if name == "localhost" or name.startswith("127.") else "https"  # as docker does
        self._base = f"{self._scheme}://{host}/v2/{path}"
        self._token = ""

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
        except (OSError, HTTPException) as error:
            raise self._error(digest, str(error) or type(error).__name__) from None
        if count != size or f"sha256:{found.hexdigest()}" != digest:
            raise self._error(digest, f"{count} bytes of another content, {size} were wanted")

    def _small(self, place: str, digest: str) -> bytes:
        try:
            with self._ask(place) as answer:
                data = answer.read(_SMALL + 1)
        except (OSError, HTTPException) as error:
            raise self._error(digest, str(error) or type(error).__name__) from None
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise self._error(digest, "another content than its digest says")
        return data

    def _ask(self, place: str) -> HTTPResponse:
        try:
            return self._open(f"{self._base}/{place}")
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 401 or self._token:
                    raise
                self._token = self._log_in(error.headers.get("WWW-Authenticate") or "")
        return self._open(f"{self._base}/{place}")

    def _open(self, url: str) -> HTTPResponse:
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})  # noqa: S310 - http or https, see above
        if self._token:  # not to where a registry sends on: that has an authorization of its own in the URL
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - as above
        return answer

    def _log_in(self, challenge: str) -> str:
        """A token for everybody; "" where there is none."""
        fields = dict(_FIELD.findall(challenge))
        realm = fields.get("realm", "")
        if not challenge.lower().startswith("bearer ") or urllib.parse.urlsplit(realm).scheme not in {
            "https",
            self._scheme,
        }:
            return ""
        asked = {"scope": fields.get("scope") or f"repository:{self._path}:pull"}
        if "service" in fields:
            asked["service"] = fields["service"]
        with urllib.request.urlopen(f"{realm}?{urllib.parse.urlencode(asked)}", timeout=_TIMEOUT) as answer:  # noqa: S310 - scheme seen above
            try:
                body = json.loads(answer.read(_SMALL))
            except ValueError:
                return ""
        return str(body.get("token") or body.get("access_token") or "") if isinstance(body, dict) else ""

    def _error(self, digest: str, found: str) -> AgentError:
        return AgentError(
            "the registry does not give what docker left out of its pull",
            kind="node",
            where=f"{self._base} {digest}",
            found=found,
            next="run again; an image that wants a login can be brought by another node that has it",
        )
