"""Carry blobs: receive those that are missing here, and give them out meanwhile to those who come after."""

from __future__ import annotations

import hmac
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside, keep_owner
from sparkbuild.agent.store.blobs import PART, is_name, is_whole, path_of, send
from sparkbuild.agent.store.httpd import Request, Server
from sparkbuild.agent.store.receive import Receiver, Source
from sparkbuild.agent.wire.protocol import AgentError, Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import ClearRequest, ClearResult, RelayRequest

BEAT = 0.2  # seconds between two signs of life
STALE = 14 * 86400  # seconds after which blobs that nobody came back for are removed


def run(request: RelayRequest | ClearRequest, reporter: Reporter) -> ClearResult:
    """Emits {"event": "serving", "ports": {address: port}}, progress "receive", and {"event": "complete", "bytes":
    received now}, then beats until stdin closes; or removes blobs. Error kind "integrity" when there are no sources,
    and blobs are lacking.
    """
    folder = inside(request["store"], request["folder"])
    blobs = {blob["sha256"]: blob["size"] for blob in request["blobs"]}
    if not all(map(is_name, blobs)):
        raise AgentError("a blob is named by its sha256", found=repr(next(b for b in blobs if not is_name(b))))
    if "clear" in request:
        return {"removed": clear(folder, blobs)}
    os.makedirs(folder, exist_ok=True)
    keep_owner(folder)
    server = Server(request["listen"], _Door(folder, blobs, request["token"]).answer)
    missing = {sha256: size for sha256, size in blobs.items() if not is_whole(folder, sha256, size)}
    if missing and not request["sources"]:
        name = next(iter(missing))
        raise integrity_error(
            f"{len(missing)} of {len(blobs)} blobs are not where they were made",
            where=path_of(folder, name),
            wanted=f"{missing[name]} bytes",
            next="run again: what is missing is made again",
        )
    reporter.emit("serving", ports=server.ports)
    sources = [Source(place["host"], place["port"], request["token"]) for place in request["sources"]]
    _Work(folder, missing, sources, reporter, sum(blobs.values())).run()
    while True:  # ends with stdin
        time.sleep(BEAT)
        reporter.emit("beat")


def clear(folder: str, blobs: dict[str, int]) -> int:
    """Remove blobs that have arrived where they were needed, and old ones; how many bytes."""
    removed = 0
    with suppress(FileNotFoundError):
        for entry in os.listdir(folder):
            name = entry.removesuffix(PART).removesuffix(".stamp")  # a stamp is left by `put`
            path = os.path.join(folder, entry)
            with suppress(OSError):
                state = os.lstat(path)
                if is_name(name) and (name in blobs or time.time() - state.st_mtime > STALE):
                    os.unlink(path)
                    removed += state.st_size
    return removed


class _Door:
    """Gives out blobs to whoever knows the token."""

    def __init__(self, folder: str, blobs: dict[str, int], token: str) -> None:
        self._folder = folder
        self._blobs = blobs
        self._path = f"/{token}/".encode()

    def answer(self, request: Request) -> None:
        path = request.path.encode()
        name = request.path[len(self._path) :]
        if not hmac.compare_digest(path[: len(self._path)], self._path) or name not in self._blobs:
            request.answer(404)
            return
        span = request.content(self._blobs[name], {"Content-Type": "application/octet-stream"})
        if span is not None:
            send(request.caller, self._folder, name, *span)


class _Work:
    """Receiving, with a sign of life whatever happens."""

    def __init__(
        self, folder: str, missing: dict[str, int], sources: list[Source], reporter: Reporter, total: int
    ) -> None:
        self._missing = missing
        self._reporter = reporter
        self._total = total
        self._done = total - sum(missing.values())
        self._received = 0
        self._error: BaseException | None = None
        self._receiver = Receiver(folder, sources, self._grew)
        self._thread = threading.Thread(target=self._receive, daemon=True)

    def run(self) -> None:
        """Until all have arrived."""
        self._thread.start()
        while self._thread.is_alive():
            self._thread.join(BEAT)
            self._reporter.emit("beat")
        if self._error is not None:
            raise self._error
        self._reporter.emit("complete", bytes=self._received)

    def _grew(self, count: int) -> None:
        self._done += count
        self._reporter.progress("receive", self._done, self._total)

    def _receive(self) -> None:
        try:
            for sha256, size in self._missing.items():
                self._received += self._receiver.receive(sha256, size)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
