"""What tools keep for themselves in a folder of a model: `.cache/huggingface` of huggingface_hub, `.git` of git.

It is no data of the model, so it is left out and counted. What huggingface_hub notes there of each download into a
folder (`hf download --local-dir`, its _local_folder.py) says more of the files than they do themselves:
`.cache/huggingface/download/<path>.metadata` has three lines, commit, etag and time; the etag is the sha256 of a large
file, git's sha1 of another. `<hash of the name>.<etag>.<8 hex>.incomplete` beside it is a download that did not end.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Collection
from typing import NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.source.versions import Version

HUB, GIT = ".cache/huggingface", ".git"
_DOWNLOAD = f"{HUB}/download/"
_LIMIT = 4096  # bytes of a note; a real one has some 130
_NOTE, _LOCK, _UNFINISHED = ".metadata", ".lock", ".incomplete"
_ETAG = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_SHA256 = 64  # hex digits
_LATE = 10**9  # nanoseconds that an mtime may be after its note, as huggingface_hub takes it


class Note(NamedTuple):
    """What was noted when a file was downloaded. `at` in seconds since 1970; `path` of the note."""

    etag: str
    at: float
    path: str

    def digests(self, version: Version) -> tuple[str, str]:
        """(sha256, git sha1) that the file must have, "" for what is not known. A small file that was changed after it
        was downloaded was edited by somebody; weights are not edited, they break.
        """
        if len(self.etag) == _SHA256:
            return self.etag, ""
        edited = version.mtime_ns - _LATE > self.at * 1e9
        return "", "" if edited else self.etag


def of_tool(path: str) -> str:
    """Which folder of a tool a path in the source is, "" when it is none."""
    return next((name for name in (HUB, GIT) if path == name or path.endswith(f"/{name}")), "")


def notes(top: str, folder: str) -> tuple[dict[str, Note], list[str]]:
    """What huggingface_hub kept in a folder of `top` ("" or ending in "/"): the notes, by the path in `top` of the file
    that each is of, and the paths of files whose downloads did not end (or the names of these, where nothing says of
    which file they are).
    """
    by_path: dict[str, Note] = {}
    others: list[str] = []
    folders = [""]
    while folders:
        inner = folders.pop()
        for name in nas.names(f"{top}/{folder}{_DOWNLOAD}{inner}"):
            here = f"{folder}{_DOWNLOAD}{inner}{name}"
            if name.endswith(_NOTE):
                note = _note(f"{top}/{here}")
                if note is not None:
                    by_path[f"{folder}{inner}{name.removesuffix(_NOTE)}"] = note
            elif name.endswith((_LOCK, _UNFINISHED)):
                others.append(f"{inner}{name}")
            elif nas.is_folder(f"{top}/{here}"):
                folders.append(f"{inner}{name}/")
    return by_path, _unfinished(folder, by_path, others)


def _note(path: str) -> Note | None:
    try:
        data = nas.small(path, _LIMIT)
        _, etag, at = (data or b"").decode("ascii").split("\n")[:3]
        return Note(etag.strip(), float(at), path) if _ETAG.fullmatch(etag.strip()) else None
    except (FileNotFoundError, ValueError):  # torn, or of a version that writes another: then nothing is known
        return None


def _unfinished(folder: str, noted: dict[str, Note], others: Collection[str]) -> list[str]:
    """Downloads that did not end, and did not end later by another one."""
    files = {path.removeprefix(folder) for path in noted}
    files |= {name.removesuffix(_LOCK) for name in others if name.endswith(_LOCK)}
    names = {f"{os.path.dirname(path)}/{_hash(os.path.basename(path) + _NOTE)}": path for path in files}
    open_ones = set()
    for other in others:
        if not other.endswith(_UNFINISHED):
            continue
        inner, name = os.path.split(other)
        hashed, _, rest = name.partition(".")
        path = names.get(f"{inner}/{hashed}", other)
        note = noted.get(f"{folder}{path}")
        if note is None or note.etag != rest.partition(".")[0]:
            open_ones.add(f"{folder}{path}")
    return sorted(open_ones)


def _hash(name: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha1(name.encode(), usedforsecurity=False).digest()).decode()


def count(path: str) -> int:
    """How many files are in a folder of a tool, at whatever depth."""
    return nas.patient(path, lambda: sum(len(names) for _, _, names in os.walk(path)))
