"""One url into a part file, going on where an earlier try was cut; `file:` urls are copied."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from errno import EDQUOT, ENOSPC
from typing import Any
from urllib.parse import unquote, urlsplit

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_BLOCK = 1 << 20
_TIMEOUT = 60.0  # seconds without a byte
_GONE = (404, 410)  # what else a server answers may be another tomorrow


def download(url: str, root: str, part: str, reporter: Reporter, pinned: str) -> bool:
    """Get the url; relative `file:` urls start from `root`. True when `part` held some of it before.
    `pinned` is the file that has the url, for messages.

    Errors: kind "gone" when it is not there, "node" when it cannot be had; what came so far stays in `part`. OSError
    for the disk's own.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        _copy(inside(root, unquote(parts.path)), part, reporter, pinned)
        return False
    done = os.path.getsize(part) if os.path.exists(part) else 0
    got, total = _get(url, part, done, reporter, pinned)
    if total is not None and got < total:
        raise _cut(url, f"{got} bytes", f"{total} bytes")
    return done > 0


def _get(url: str, part: str, done: int, reporter: Reporter, pinned: str) -> tuple[int, int | None]:
    """Bytes there are now, and bytes there should be (None when the server does not say)."""
    ask = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})  # noqa: S310 - http(s) by the lock's check
    size = done
    try:
        with urllib.request.urlopen(ask, timeout=_TIMEOUT) as answer:  # noqa: S310
            start = done if answer.status == 206 and _starts_at(answer, done) else 0
            if answer.status == 206 and not start:
                raise AgentError("the server sent another part than was asked for", kind="node", where=url)
            left = answer.headers.get("Content-Length")
            total = start + int(left) if left else None
            with open(part, "r+b" if start else "wb") as sink:
                sink.seek(start)
                while block := answer.read1(_BLOCK):
                    sink.write(block)
                    size = sink.tell()
                    reporter.progress("download", size, total)
                size = sink.tell()
            return size, total
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the part is already whole, or longer than the file: the hash decides
            return done, None
        kind = "gone" if error.code in _GONE else "node"
        raise AgentError(
            "download failed",
            kind=kind,
            where=url,
            found=f"the server says HTTP {error.code} {error.reason}".rstrip(),
            next=_next(error.code, pinned),
        ) from error
    except http.client.IncompleteRead as error:
        raise _cut(url, f"{size} bytes", "all of it") from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
            raise
        reason = getattr(error, "reason", None) or error
        raise AgentError(
            "download failed", kind="node", where=url, found=str(reason), next="run again: it goes on where it was"
        ) from error


def _next(code: int, pinned: str) -> str:
    """What to do about what a server answered."""
    if code in _GONE:
        return f"look whether it is still there, by another name: correct its URL in {pinned}"
    if code in (401, 403):
        return f"it wants a login, or does not serve this node: write a URL that anybody may fetch into {pinned}"
    if code == 429 or code >= 500:
        return "it has trouble of its own: run again later, it goes on where it was"
    return f"check its URL in {pinned}"


def _starts_at(answer: Any, done: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {done}-")


def _cut(url: str, found: str, wanted: str) -> AgentError:
    return AgentError(
        "the download was cut off",
        kind="node",
        where=url,
        found=found,
        wanted=wanted,
        next="run again: it goes on where it was",
    )


def _copy(source: str, part: str, reporter: Reporter, pinned: str) -> None:
    try:
        with open(source, "rb") as file, open(part, "wb") as sink:
            total = os.fstat(file.fileno()).st_size
            while block := file.read(_BLOCK):
                sink.write(block)
                reporter.progress("copy", sink.tell(), total)
    except FileNotFoundError:
        raise AgentError(
            "the artifact's file is not there",
            kind="gone",
            where=source,
            next=f"put it there, or correct its URL in {pinned}",
        ) from None
