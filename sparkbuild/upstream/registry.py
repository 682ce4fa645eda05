"""Asking a registry of images: what a tag is now, what tags there are, and whether a digest can be had. Anonymous.

The API is https://github.com/opencontainers/distribution-spec; where a token is wanted, it is got as
https://distribution.github.io/distribution/spec/auth/token/ says, without a name.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from sparkbuild.core.errors import UpstreamError

if TYPE_CHECKING:
    import httpx

DEFAULT = "registry-1.docker.io"  # what a name without a host means, to docker as to us
_PAGES = 50
_LIMIT = 8 << 20  # bytes of a manifest or of one page of tags
_TIMEOUT = 20.0  # seconds
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join(_MANIFESTS)
_FIELD = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One image's place in one registry: `host` as the image's name has it, "" for docker's own; `path` in it."""

    def __init__(self, host: str, path: str) -> None:
        import httpx  # noqa: PLC0415 - 70 ms, and only few commands ask a registry

        self.path = path if host or "/" in path else f"library/{path}"
        self.host = {"": DEFAULT, "docker.io": DEFAULT, "index.docker.io": DEFAULT}.get(host, host)
        name = urlsplit(f"//{self.host}").hostname or ""
        # As docker does: only this machine is spoken to without TLS.
        self._base = f"{'http' if name == 'localhost' or name.startswith('127.') else 'https'}://{self.host}"
        self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=True, headers={"User-Agent": "sparkbuild"})
        self._token = ""

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def digest(self, tag: str) -> str:
        """The digest that a tag has now, "sha256:<hex>", of the bytes that were read. Raises UpstreamError."""
        return f"sha256:{hashlib.sha256(self._manifest(tag)).hexdigest()}"

    def check(self, digest: str) -> int:
        """Read what a digest names; its bytes. Raises UpstreamError when it is not there, or is something else."""
        data = self._manifest(digest)
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if found != digest:
            raise self._error("the registry gives out another manifest under the digest", found, reached=True)
        return len(data)

    def tags(self) -> list[str]:
        """All tags, in the registry's order. Raises UpstreamError."""
        found: list[str] = []
        url = f"{self._base}/v2/{self.path}/tags/list?n=1000"
        for _ in range(_PAGES):
            answer = self._get(url, "application/json")
            try:
                found += [str(tag) for tag in answer.json().get("tags") or []]
            except (ValueError, AttributeError, TypeError) as error:
                raise self._error("the registry's list of tags is none", str(error), reached=True) from error
            url = urljoin(url, answer.links.get("next", {}).get("url", ""))
            if not answer.links.get("next") or urlsplit(url).netloc != urlsplit(self._base).netloc:
                break
        return found

    def _manifest(self, reference: str) -> bytes:
        return self._get(f"{self._base}/v2/{self.path}/manifests/{reference}", _ACCEPT).content

    def _get(self, url: str, accept: str) -> httpx.Response:
        import httpx  # noqa: PLC0415 - see above

        try:
            answer = self._ask(url, accept)
            if answer.status_code == 401 and self._log_in(answer.headers.get("WWW-Authenticate", "")):
                answer = self._ask(url, accept)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._error("the registry cannot be reached", str(error) or type(error).__name__) from error
        if answer.status_code == 200:
            return answer
        code = f"HTTP {answer.status_code}"
        if answer.status_code in {401, 403}:
            what = "the registry wants a login, or has no such image"
            raise self._error(what, code)  # which of the two, it does not say
        if answer.status_code == 404:
            raise self._error("the registry has no such image or tag", code, reached=True)
        raise self._error("the registry does not answer as it should", code)  # 429, 5xx: not now

    def _ask(self, url: str, accept: str) -> httpx.Response:
        import httpx  # noqa: PLC0415 - see above

        headers = {"Accept": accept}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        with self._client.stream("GET", url, headers=headers) as answer:
            data = b""
            for block in answer.iter_bytes():
                data += block
                if len(data) > _LIMIT:
                    raise self._error("the registry's answer is too big", f"more than {_LIMIT} bytes", reached=True)
            kept = [(name, value) for name, value in answer.headers.multi_items() if name != "content-encoding"]
            return httpx.Response(answer.status_code, headers=kept, content=data, request=answer.request)

    def _log_in(self, challenge: str) -> bool:
        """Get the token that the registry asks for; False when it asks for something else."""
        if self._token or not challenge.lower().startswith("bearer "):
            return False
        fields = dict(_FIELD.findall(challenge))
        realm = fields.get("realm", "")
        if urlsplit(realm).scheme not in {"https", urlsplit(self._base).scheme}:
            return False
        scope = fields.get("scope") or f"repository:{self.path}:pull"
        params = {"scope": scope, **({"service": fields["service"]} if "service" in fields else {})}
        answer = self._client.get(realm, params=params)
        if answer.status_code != 200 or len(answer.content) > _LIMIT:
            return False
        try:
            body: Any = answer.json()
        except ValueError:
            return False
        self._token = str(body.get("token") or body.get("access_token") or "") if isinstance(body, dict) else ""
        return bool(self._token)

    def _error(self, what: str, found: str, *, reached: bool = False) -> UpstreamError:
        error = UpstreamError(what, where=f"{self.host}/{self.path}", found=found)
        error.reached = reached
        return error
