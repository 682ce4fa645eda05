"""A base image of a source lock: `name[:tag]@sha256:<digest>` under a key that ends in `.image`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from sparkbuild.core.errors import LockError
from sparkbuild.core.suggest import did_you_mean
from sparkbuild.workspace.locks.text import LockValues

ENDING = ".image"

_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
# The grammar of github.com/distribution/reference: the first part is a host only with a dot, a port, or as localhost.
_NAME = re.compile(rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BaseImage(msgspec.Struct, frozen=True):
    """An image in a registry. `host` is "" for Docker's own registry; `tag` is what was asked for, or "".

    `digest` is "sha256:<64 hex>"; "" only while `lock:update` looks it up.
    """

    key: str
    host: str
    path: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """The name without tag and digest, as it was written."""
        return f"{self.host}/{self.path}" if self.host else self.path

    @property
    def pinned(self) -> str:
        """The reference as a Dockerfile's FROM takes it: by digest alone."""
        return f"{self.name}@{self.digest}"

    def written(self) -> str:
        """The value of the lock's key."""
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that name an image, sorted."""
    return tuple(sorted(key for key in values if key.endswith(ENDING) and key != ENDING))


def image(key: str, lock: LockValues) -> BaseImage:
    """The image of a key of the lock. Raises LockError at its line when it is missing, floating or malformed."""
    if key not in lock.values:
        hint = did_you_mean(key, keys(lock.values)) or f"{key}=name@sha256:<64 hex digits>"
        raise LockError(f"no image `{key}` in {lock.path}", where=f"{lock.path}:1", wanted=hint)
    value = lock.values[key]
    found = parse(key, value)
    if found is None or not found.digest:
        floating = found is not None
        raise LockError(
            f"`{key}` is a tag, which may be another image tomorrow" if floating else f"`{key}` is not an image",
            where=lock.where(key),
            found=repr(value[:200]),
            wanted="name@sha256:<64 lowercase hex digits>",
            next=f"`doit lock:update {lock.name} {key}={value.rpartition(':')[2] if ':' in value else 'TAG'}` pins it"
            if floating
            else "",
        )
    return found


def parse(key: str, value: str) -> BaseImage | None:
    """The image that a value names, with or without tag and digest; None when it is none."""
    name, at, digest = value.partition("@")
    match = _NAME.fullmatch(name)
    if match is None or len(name) > 255 or (at and not _DIGEST.fullmatch(digest)):
        return None
    host, path = match["host"] or "", match["path"]
    if host and not ("." in host or ":" in host or host == "localhost"):
        host, path = "", f"{host}/{path}"
        if not re.fullmatch(rf"{_PART}(?:/{_PART})*", path):
            return None
    return BaseImage(key, host, path, match["tag"] or "", digest)
