"""References of docker images that others made, as docker reads them: `[host[:port]/]path[:tag][@sha256:<hex>]`."""

from __future__ import annotations

import re

import msgspec

from sparkbuild.core.errors import ConfigError

_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HUB = "docker.io"


class Reference(msgspec.Struct, frozen=True):
    """`host` and `path` name the repository. `tag` and `digest` may be "": without a digest the image is another one
    tomorrow; beside a digest, the tag only says what to look up for a newer one.
    """

    host: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """As docker lists it: without the host of Docker Hub."""
        return self.path.removeprefix("library/") if self.host == _HUB else f"{self.host}/{self.path}"

    @property
    def pinned(self) -> str:
        """The one image that it means; "" without a digest."""
        return f"{self.repository}@{self.digest}" if self.digest else ""

    @property
    def name(self) -> str:
        """A short name for people and tasks."""
        return self.path.rpartition("/")[2]


def is_reference(image: str) -> bool:
    """Whether a recipe's `image` is one of a registry, and not the name of an image of the workspace."""
    return any(sign in image for sign in "/:@")


def is_tag(text: str) -> bool:
    """Whether docker would take it as a tag."""
    return bool(_TAG.fullmatch(text))


def rewritten(text: str, tag: str, digest: str) -> str:
    """A reference with another tag and digest; host and path stay as they are written."""
    return f"{_split(text)[0]}:{tag}@{digest}"


def _split(text: str) -> tuple[str, str, str]:
    """Name, tag and digest as they are written. A colon before the last `/` is that of a port."""
    name, _, digest = text.partition("@")
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{head}{slash}{last}", tag, digest


def parse(text: str) -> Reference:
    """A reference; ConfigError when docker would not take it."""
    name, tag, digest = _split(text)
    first, slash, rest = name.partition("/")
    host, path = (first, rest) if slash and ("." in first or ":" in first or first == "localhost") else (_HUB, name)
    if host == _HUB and "/" not in path:
        path = f"library/{path}"
    checks = (
        (bool(_HOST.fullmatch(host)) and bool(_PATH.fullmatch(path)), "host and path in lower case"),
        ("@" not in text or bool(_DIGEST.fullmatch(digest)), "a digest of 64 hex digits: name@sha256:..."),
        (not tag or is_tag(tag), "a tag of letters, digits, `.`, `_` and `-`"),
    )
    for right, wanted in checks:
        if not right:
            raise ConfigError("this cannot be the name of an image", found=text, wanted=wanted)
    return Reference(host, path, tag, digest)
