"""Asking a registry of images: what a tag is now, what tags there are, and whether a digest can be had. Anonymous, or
with the operator's login where docker has one.

The API is https://github.com/opencontainers/distribution-spec; where a token is wanted, it is got as
https://distribution.github.io/distribution/spec/auth/token/ and .../oauth/ say.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from sparkbuild.core.errors import SparkbuildError, UpstreamError
from sparkbuild.core.interrupt import cancel
from sparkbuild.upstream.challenge import Challenge, challenges, seconds
from sparkbuild.upstream.logins import Login, login_of, place
from sparkbuild.upstream.registryhost import base_of, host_of

if TYPE_CHECKING:
    import httpx

_PAGES = 50
_TIMEOUT = 20.0  # seconds
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join(_MANIFESTS)
_PATIENCE = 20.0  # seconds that a registry which is asked too much may have us wait


class Registry:
    """One image's place in one registry: `host` as the image's name has it, "" for docker's own; `path` in it."""

    def __init__(self, host: str, path: str, timeout: float = _TIMEOUT) -> None:
        from sparkbuild.upstream.boundedhttp import BoundedClient  # noqa: PLC0415 - httpx: 70 ms, and few commands ask

        self.path = path if host or "/" in path else f"library/{path}"
        self.host = host_of(host)
        self._base = base_of(self.host)
        self._client = BoundedClient(f"{self.host}/{self.path}", timeout)
        self._authorization = ""
        self._login: Login | None = None
        self._unread: SparkbuildError | None = None  # why the login cannot be had, where there may be one
        self._given = host

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def digest(self, tag: str) -> str:
        """The digest that a tag has now, "sha256:<hex>", of the bytes that were read. Raises UpstreamError."""
        return f"sha256:{hashlib.sha256(self._manifest(tag)).hexdigest()}"

    def find(self, digest: str) -> None:
        """Raises UpstreamError when the registry does not say that it has the digest. Nothing is read of it: docker's
        own registry counts what is read.
        """
        self._get(f"{self._base}/v2/{self.path}/manifests/{digest}", _ACCEPT, "HEAD")

    def check(self, digest: str) -> int:
        """Read what a digest names; its bytes. Raises UpstreamError when it is not there, or is something else."""
        data = self._manifest(digest)
        there = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if there != digest:
            raise self._error("the registry gives out another manifest under the digest", there, reached=True)
        return len(data)

    def tags(self) -> list[str]:
        """All tags, in the registry's order. Raises UpstreamError."""
        tags: list[str] = []
        url = f"{self._base}/v2/{self.path}/tags/list?n=1000"
        for _ in range(_PAGES):
            answer = self._get(url, "application/json")
            try:
                tags += [str(tag) for tag in answer.json().get("tags") or []]
                following = urljoin(url, answer.links.get("next", {}).get("url", ""))
                is_here = urlsplit(following).netloc == urlsplit(self._base).netloc
            except (ValueError, AttributeError, TypeError, RecursionError) as error:
                raise self._error("the registry's list of tags is none", str(error)[:200], reached=True) from error
            if not answer.links.get("next") or not is_here:
                break
            url = following
        return tags

    def _manifest(self, reference: str) -> bytes:
        return self._get(f"{self._base}/v2/{self.path}/manifests/{reference}", _ACCEPT).content

    def _get(self, url: str, accept: str, method: str = "GET") -> httpx.Response:
        answer = self._patiently(method, url, accept)
        if answer.status_code == 401 and self._log_in(challenges(answer.headers.get_list("www-authenticate"))):
            answer = self._patiently(method, url, accept)
        if answer.status_code == 200:
            return answer
        raise self._refusal(answer)

    def _refusal(self, answer: httpx.Response) -> UpstreamError:
        code = f"HTTP {answer.status_code}"
        if answer.status_code in {401, 403}:
            login = f"docker login {self._given or 'docker.io'}"
            if self._unread is not None:
                what, why = "the registry wants a login, which cannot be read", self._unread
                found = f"{code}; {why.where}: {why.what}: {why.found}"
                return self._error(what, found, next_=why.next or f"`{login}`", wants_login=True)
            if self._login is not None:
                what = "the registry does not take the login that docker has, or has no such image"
                found, next_ = f"{code}, with the login of {place()}", f"`{login}` writes it anew"
                return self._error(what, found, next_=next_, wants_login=True)
            what = "the registry wants a login, or has no such image"  # which of the two, it does not say
            return self._error(what, code, next_=f"`{login}`, on this machine", wants_login=True)
        if answer.status_code == 404:
            return self._error("the registry has no such image or tag", code, reached=True)
        if answer.status_code == 429:
            wait = answer.headers.get("retry-after", "")
            next_ = "run again later" + ("" if self._login else "; who is logged in may ask more often: `docker login`")
            found = f"{code}, Retry-After: {wait[:40]}" if wait else code
            return self._error("the registry was asked too often, and takes no more questions now", found, next_=next_)
        return self._error("the registry does not answer as it should", code)  # 5xx: not now

    def _patiently(self, method: str, url: str, accept: str) -> httpx.Response:
        """The answer, after the pauses that a busy registry asks for, as long as they are short."""
        end = time.monotonic() + _PATIENCE
        while True:
            answer = self._ask(method, url, accept)
            wait = seconds(answer.headers.get("retry-after", "")) if answer.status_code == 429 else None
            if wait is None or time.monotonic() + wait > end:
                return answer
            until = time.monotonic() + max(wait, 0.5)
            while time.monotonic() < until:
                cancel.check()
                time.sleep(0.1)

    def _ask(self, method: str, url: str, accept: str) -> httpx.Response:
        login = {"Authorization": self._authorization} if self._authorization else {}
        return self._client.ask(method, url, headers={"Accept": accept, **login})

    def _log_in(self, offered: list[Challenge]) -> bool:
        """Get what the registry asks for; False when it asks for something else, or for a login that nobody has."""
        if self._authorization:
            return False
        try:
            self._login = login_of(self._given)
        except SparkbuildError as error:  # as docker does: most images are for everybody, also when a helper is gone
            self._unread = error
        for challenge in offered:
            if challenge.kind == "bearer":
                self._authorization = self._bearer(challenge.fields)
            elif challenge.kind == "basic" and self._login is not None and self._login.name:
                self._authorization = self._login.basic
            if self._authorization:
                return True
        return False

    def _bearer(self, fields: dict[str, str]) -> str:
        """A token, of everybody or of the login. The login is shown to https alone, and to this machine."""
        realm, login = fields.get("realm", ""), self._login
        if login is not None and login.bearer:
            return f"Bearer {login.bearer}"
        try:
            parts = urlsplit(realm)
            is_safe = base_of(parts.netloc) == f"{parts.scheme}://{parts.netloc}"
        except ValueError as error:
            raise self._client.unreached(str(error)[:200]) from error
        if not is_safe:
            return ""
        scope = fields.get("scope") or f"repository:{self.path}:pull"
        asked = {**({"service": fields["service"]} if "service" in fields else {}), "scope": scope}
        if login is not None and login.identity:
            asked |= {"grant_type": "refresh_token", "client_id": "sparkbuild", "refresh_token": login.identity}
            answer = self._client.ask("POST", realm, headers={}, form=asked)
        else:
            headers = {"Authorization": login.basic} if login is not None else {}
            answer = self._client.ask("GET", realm, headers=headers, params=asked)
        if answer.status_code != 200:
            return ""
        try:
            body: Any = answer.json()
        except (ValueError, RecursionError):
            return ""
        token = str(body.get("token") or body.get("access_token") or "") if isinstance(body, dict) else ""
        return f"Bearer {token}" if token else ""

    def _error(
        self, what: str, found: str, *, reached: bool = False, next_: str = "", wants_login: bool = False
    ) -> UpstreamError:
        error = UpstreamError(what, where=f"{self.host}/{self.path}", found=found, next=next_)
        error.reached, error.wants_login = reached, wants_login
        return error
