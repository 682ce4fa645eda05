"""What `docker save` gives, taken apart while it passes: a tar per layer and the config, in docker's old form (up to
24, `<id>/layer.tar`) and in the OCI one (`blobs/sha256/<hex>`, layers perhaps compressed).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from sparkbuild.agent.disk import opentar, zstd
from sparkbuild.agent.disk.held import created, remove
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import DockerdError, message, quote
from sparkbuild.agent.docker.unixhttp import Answer
from sparkbuild.agent.wire.protocol import integrity_error

_BLOCK = 1 << 20
_SMALL = 16 << 20  # bytes; configs and manifests are smaller
_ALL_SMALL = 64 << 20  # bytes of all of one image
_GZIP = b"\x1f\x8b"


@dataclass
class Saved:
    """The layers as files by their diff ids, and the config as bytes."""

    layers: dict[str, str] = field(default_factory=dict)
    config: bytes = b""


def saved(engine: DockerWork, reference: str, wanted: set[str], work: str, on_bytes: Callable[[int], None]) -> Saved:
    """Take an image apart into the folder `work`. Only the layers that are `wanted` (diff ids) are kept."""
    image = Saved()
    small: dict[str, bytes] = {}
    with open_save(engine, reference, on_bytes) as tar:
        for number, member in enumerate(tar):
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            if is_layer(member.name):
                path = os.path.join(work, f"{number}.tar")
                digest = _copy(content, path)
                if digest in wanted and digest not in image.layers:
                    image.layers[digest] = path
                    continue
                if member.name.startswith("blobs/") and os.path.getsize(path) <= _SMALL:
                    small[member.name] = _read(path)
                remove(path)
            elif member.size <= _SMALL:
                small[member.name] = content.read()
            if sum(map(len, small.values())) > _ALL_SMALL:
                raise ValueError(f"more than {_ALL_SMALL >> 20} MiB of configs and manifests")
    image.config = _config(small)
    return image


class _Stream:
    """The body of an answer as a file that is read once."""

    def __init__(self, blocks: Iterator[bytes], on_bytes: Callable[[int], None]) -> None:
        self._blocks = blocks
        self._on_bytes = on_bytes
        self._rest = b""
        self._done = 0

    def read(self, size: int) -> bytes:
        found = bytearray(self._rest[:size])
        self._rest = self._rest[size:]
        while len(found) < size and (block := next(self._blocks, b"")):
            self._done += len(block)
            take = size - len(found)
            found += block[:take]
            self._rest = block[take:]
        self._on_bytes(self._done)
        return bytes(found)


class open_save:  # noqa: N801 - used like open()
    """`docker save` as a tar that is read once, in a `with`."""

    def __init__(self, engine: DockerWork, reference: str, on_bytes: Callable[[int], None]) -> None:
        self._engine = engine
        self._target = f"/images/{quote(reference)}/get"
        self._on_bytes = on_bytes

    def __enter__(self) -> tarfile.TarFile:
        try:
            self._answer = Answer(self._engine.socket, self._target, self._engine.timeout)
        except (OSError, ValueError) as error:
            raise self._engine.silent(error) from None
        if self._answer.status != 200:
            with self._answer as answer:
                raise DockerdError(f"docker does not save: {message(answer)}", status=answer.status)
        self._answer.patient()
        stream: Any = _Stream(self._answer.blocks(), self._on_bytes)
        try:
            self._tar = opentar.opened(stream, "r|", bufsize=_BLOCK)
        except BaseException as error:
            self._answer.close()
            raise _broken_off(error) from error
        return self._tar

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._tar.close()
        self._answer.close()
        if error is not None and _broken_off(error) is not error:
            raise _broken_off(error) from error


def _broken_off(error: BaseException) -> BaseException:
    """An error of reading as one of docker, who gave that; any other as it is."""
    if isinstance(error, tarfile.TarError | ValueError):
        return DockerdError(f"docker ended in the middle of saving an image: {error}")
    return error


def is_layer(name: str) -> bool:
    """Whether a member may be a layer by its name; in the OCI form it may be a config as well."""
    return name.endswith("/layer.tar") or name.startswith("blobs/sha256/")


def uncompressed(content: IO[bytes]) -> IO[bytes]:
    """A layer as a plain tar, whatever docker keeps it as."""
    first = content.read(_BLOCK)
    source: Any = _Joined(first, content)
    if first.startswith(zstd.MAGIC):
        return zstd.unpacked(source)
    return _Gzip(source) if first.startswith(_GZIP) else source  # type: ignore[return-value]


def _copy(content: IO[bytes], path: str) -> str:
    """Write a layer, uncompressed; its digest."""
    source = uncompressed(content)
    digest = hashlib.sha256()
    with created(path) as file:
        while block := source.read(_BLOCK):
            digest.update(block)
            file.write(block)
    return f"sha256:{digest.hexdigest()}"


class _Gzip:
    """A gzip stream, of which reading raises ValueError when it is damaged or not whole, as of the other kinds."""

    def __init__(self, source: IO[bytes]) -> None:
        self._unpacked = gzip.GzipFile(fileobj=source)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._unpacked.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"not a whole gzip stream: {error}") from None


class _Joined:
    """A beginning that was read already, and what follows."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        if self._first:
            found = self._first if size < 0 else self._first[:size]
            self._first = self._first[len(found) :]
            return found
        return self._rest.read(size)


def _config(small: dict[str, bytes]) -> bytes:
    try:
        (manifest,) = json.loads(small["manifest.json"])
        return small[manifest["Config"]]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise integrity_error("docker saved no image that can be read", found=repr(error)) from error


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
