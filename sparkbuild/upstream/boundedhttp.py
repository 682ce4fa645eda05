"""HTTP to registries, with bounds: an answer has an end, a ctrl-C is heard meanwhile, and who is not this machine is
asked by https alone, also where a redirect says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from sparkbuild.core.errors import UpstreamError
from sparkbuild.core.interrupt import cancel
from sparkbuild.upstream.registryhost import is_here

LIMIT = 8 << 20  # bytes of a manifest, of one page of tags, of a token


class BoundedClient:
    """Asks one registry, and who gives tokens for it. `where` names it in messages; `timeout` is in seconds, for each
    read.
    """

    def __init__(self, where: str, timeout: float, transport: httpx.BaseTransport | None = None) -> None:
        self._where = where
        self._client = httpx.Client(
            timeout=timeout,
            follow_redirects=True,
            headers={"User-Agent": "sparkbuild"},
            event_hooks={"request": [_refuse_plain]},
            transport=transport,
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """The whole answer, whatever its status. UpstreamError when there is none, or none that ends."""
        try:
            with self._client.stream(method, url, headers=headers, params=params, data=form) as answer:
                return self._read(answer)
        # ValueError: an address that it names, and that is none
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise self.unreached(str(error)[:200] or type(error).__name__) from error

    def unreached(self, why: str) -> UpstreamError:
        """The error for no answer."""
        return UpstreamError("the registry cannot be reached", where=self._where, found=why)

    def _read(self, answer: httpx.Response) -> httpx.Response:
        data = bytearray()
        for block in answer.iter_bytes():
            cancel.check()  # the timeout is for each read: one that dribbles would renew it for ever
            data += block
            if len(data) > LIMIT:
                error = UpstreamError(
                    "the registry's answer is too big", where=self._where, found=f"more than {LIMIT} bytes"
                )
                error.reached = True
                raise error
        # what was unpacked has another length; with HEAD there is nothing of the length that is told
        dropped = {b"content-encoding", *((b"content-length",) if answer.request.method == "HEAD" else ())}
        # as bytes: a header may hold any
        kept = [(name, value) for name, value in answer.headers.raw if name.lower() not in dropped]
        return httpx.Response(answer.status_code, headers=kept, content=bytes(data), request=answer.request)


def _refuse_plain(request: httpx.Request) -> None:
    if request.url.scheme != "https" and not is_here(request.url.host):
        raise httpx.UnsupportedProtocol(f"it leads to {request.url.scheme}://{request.url.host}, without TLS")
