"""Links of a hub cache, followed hop by hop by their text: from a snapshot's entry to its blob, on to the shared store.

The blob's name in the repository (hop 1) is the hash of its content. What comes after it is not: the shared store of
huggingface_hub names files by a Xet hash, so following all of the way at once, as `realpath` does, loses what the
content can be checked by. It also leaves the cache when the cache itself is a link.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.wire.protocol import integrity_error

_HOPS = 8  # a cache of today needs two
HASH = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")  # sha256 of a large file, sha1 of git of another
_IN_STORE = re.compile(r".*(/blobs/[0-9a-f]{2}/[0-9a-f]{64})")


class Place(NamedTuple):
    """Where a repository is: the folder of the cache, and the repository's name in it. `path` is both."""

    cache: str
    name: str

    @property
    def path(self) -> str:
        """The repository's folder."""
        return f"{self.cache}/{self.name}"


class Way(NamedTuple):
    """Where a link leads in the end: `file` is there, or `hops` say how it came to nothing."""

    file: str
    hops: tuple[str, ...]
    whole: bool


def target(place: Place, link: str, text: str, seen: dict[str, str]) -> str:
    """What a snapshot's link names, one hop, as the kernel takes it (see nas.target): in the blobs of the repository as
    these are called here, whatever way led there. `seen` keeps where folders really are, for the links of one look.
    """

    def true(folder: str) -> str:
        if folder not in seen:
            seen[folder] = ""  # of one that is not there
            with suppress(FileNotFoundError, NotADirectoryError):
                seen[folder] = nas.true_path(folder)
        return seen[folder]

    here, blobs = os.path.dirname(link), f"{place.path}/blobs"
    folder, name = os.path.split(os.path.join(here, text))
    if name in ("", ".", ".."):
        return os.path.normpath(os.path.join(folder, name))
    # Of what is not there the text is all there is, from where the link really lies.
    way = true(folder) or os.path.normpath(os.path.join(true(here), os.path.dirname(text)))
    return os.path.join(blobs if way == (true(blobs) or f"{true(place.path)}/blobs") else way, name)


def blob_of(place: Place, link: str, text: str, to: str) -> str:
    """The name of the blob that a snapshot's link names; `to` is its target. Raises AgentError when it names no blob of
    this repository.
    """
    name = _in_blobs(place, text, to)
    if name is None:
        raise integrity_error(
            "a link of the snapshot does not lead into the blobs of its repository",
            where=link,
            found=f"-> {text}",
            wanted=f"a link to {place.path}/blobs/<hash>",
            next="what its content is cannot be told by a hash then; download that file again, or put it into `skip`",
        )
    if not HASH.fullmatch(name):
        raise integrity_error(
            "a blob is not named by a hash of its content",
            where=link,
            found=f"-> {text}",
            wanted="64 hex digits (sha256) or 40 (sha1 of git)",
            next="download that file again, or put it into `skip`",
        )
    return name


def _in_blobs(place: Place, text: str, to: str) -> str | None:
    blobs = f"{place.path}/blobs/"
    if to.startswith(blobs):
        return to[len(blobs) :]
    # An absolute link was written where the cache was then: in a container, on another mount, before it was moved.
    _, found, name = to.rpartition(f"/{place.name}/blobs/") if text.startswith("/") else ("", "", "")
    return name if found else None


def follow(place: Place, blob: str) -> Way:
    """From a blob of the repository to the file that holds its bytes. Raises AgentError for loops and ways out of the
    cache.
    """
    here = f"{place.path}/blobs/{blob}"
    hops: list[str] = []
    for _ in range(_HOPS):
        try:
            text = nas.link(here)
        except (FileNotFoundError, NotADirectoryError):
            return Way(here, (*hops, f"{here} is not there"), whole=False)
        if not text:
            return Way(here, tuple(hops), whole=True)
        hops.append(f"{here} -> {text}")
        here = _next(place, here, text)
    raise integrity_error(
        "a link of the cache leads in a circle, or through too many others",
        where=f"{place.path}/blobs/{blob}",
        found="; ".join(hops),
        wanted=f"a file after at most {_HOPS - 1} links",
        next="remove the link, and download that file again; or put it into `skip`",
    )


def _next(place: Place, link: str, text: str) -> str:
    to, top = os.path.normpath(os.path.join(os.path.dirname(link), text)), place.cache
    with suppress(FileNotFoundError, NotADirectoryError):  # of a link to nothing the text is all there is
        to, top = nas.target(link, text), nas.true_path(place.cache)
    if to.startswith(f"{top}/"):
        return place.cache + to[len(top) :]
    if text.startswith("/"):
        if stored := _IN_STORE.fullmatch(to):
            return place.cache + stored[1]
        _, found, name = to.rpartition(f"/{place.name}/blobs/")
        if found:
            return f"{place.path}/blobs/{name}"
    raise integrity_error(
        "a link leads out of the hub cache",
        where=link,
        found=f"-> {text}",
        wanted=f"a place in {place.cache}",
        next="give the cache that the link was made for, or download that file again",
    )
