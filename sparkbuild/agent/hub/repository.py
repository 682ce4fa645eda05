"""One repository in a hub cache: where it is, which commit a revision means, what is in its snapshot."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.hub import links
from sparkbuild.agent.hub.links import HASH, Place, Way
from sparkbuild.agent.ledger.ledger import SAFE_NAMES, safe_name
from sparkbuild.agent.source import versions
from sparkbuild.agent.source.versions import Version
from sparkbuild.agent.wire.protocol import AgentError, config_error, integrity_error
from sparkbuild.agent.wire.words import shown

COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)
_REF = 1024  # bytes of a ref that anyone would read
_OF_A_MODEL = ("config.json", ".safetensors", ".gguf")
_TREE = 8 << 20  # bytes, some 40,000 files: parsed, more would be too much memory for the agent


class Entry(NamedTuple):
    """One path of a snapshot: a link with its text and its target (see links.target), or ("") a real file."""

    path: str
    text: str
    target: str = ""


class Tree(NamedTuple):
    """What a commit consists of, as `trees/<commit>.json` tells: path -> {"size", "blob_id", "lfs_sha256"?}, and its
    bytes.
    """

    files: Mapping[str, Mapping[str, object]]  # as the cache says it
    data: bytes

    def blob(self, path: str) -> str:
        """What the blob of a path is named: sha256 of a large file, sha1 of git of another; "" when not known."""
        entry = self.files.get(path, {})
        name = entry.get("lfs_sha256") or entry.get("blob_id")
        return name if isinstance(name, str) and HASH.fullmatch(name) else ""

    def size(self, path: str) -> int | None:
        """Bytes of a path, None when not known."""
        size = self.files.get(path, {}).get("size")
        return size if type(size) is int else None


def find(cache: str, repo: str) -> Place:
    """The repository's folder in the cache. Raises AgentError that says where it is instead, or what is there."""
    if not _REPO.fullmatch(repo) or "--" in repo or ".." in repo:
        raise config_error(
            "this is no name of a repository",
            where=cache,
            found=repr(repo),
            wanted="org/name",
            next="correct `repos` of this staging block",
        )
    name = f"models--{repo.replace('/', '--')}"
    path = f"{cache}/{name}"
    if nas.folder_id(path) is None:
        raise _not_there(cache, repo, name)
    if nas.link(path):
        # Links in it are relative to where it really is. Of a cache that is a link as a whole, all keeps its own names.
        real = nas.true_path(path)
        return Place(os.path.dirname(real), os.path.basename(real))
    return Place(cache, name)


def _not_there(cache: str, repo: str, name: str) -> AgentError:
    near = [f"{cache}/hub", os.path.dirname(cache)]
    if os.path.basename(cache) == name:
        near = [os.path.dirname(cache)]
    here = next((place for place in near if nas.is_folder(f"{place}/{name}")), "")
    there = [folder for folder in nas.names(cache) if folder.startswith("models--")]
    if not there and not here and not nas.is_folder(cache):
        return nas.not_there("the hub cache is not there", cache)
    if not here and not nas.names(cache):
        return nas.empty("the hub cache is empty", cache, f"{name} in it")
    # Not taken by itself: of two caches, one in HF_HOME and one in its `hub`, the wrong one would be as good a guess.
    advice = f"hf download {repo} --cache-dir {cache}, or correct `src` of this staging block"
    if model := next((file for file in nas.names(cache) if file.endswith(_OF_A_MODEL)), ""):
        # A download into it would be 500 GB for a model that is there.
        advice = f'{cache} is a model itself, it has {model}: kind = "files" stages it, without `repos`'
    return config_error(
        f"the hub cache has no repository {repo}",
        where=cache,
        found=shown(there) or "no models--* in it",
        wanted=f"{cache}/{name}",
        next=f"it is in {here}: give this as `src`" if here else advice,
    )


def read_ref(place: Place, ref: str) -> str:
    """The commit that a ref names, "" when there is no such ref. A newline behind it, as hand-made caches have, is none
    of it.
    """
    try:
        data = nas.small(f"{place.path}/refs/{ref}", _REF)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    commit = (data or b"").decode("ascii", errors="replace").strip()
    if not COMMIT.fullmatch(commit):
        raise integrity_error(
            "a ref of the hub cache does not hold a commit",
            where=f"{place.path}/refs/{ref}",
            found=repr(commit[:60]),
            wanted="40 hex digits",
            next="give the commit as `revision`",
        )
    return commit


def download(place: Place, repo: str, revision: str) -> str:
    """The command that gets a revision into the cache."""
    return f"hf download {repo} --revision {revision} --cache-dir {place.cache}"


def resolve(place: Place, repo: str, revision: str) -> tuple[str, str]:
    """The commit of a revision, and the ref that was asked for ("" for a commit). Its snapshot is there. Raises
    AgentError that lists what there is.
    """
    ref = "" if COMMIT.fullmatch(revision) else revision
    if ref and not safe_name(ref):
        raise config_error(
            "this is no name of a revision",
            where=place.path,
            found=repr(revision),
            wanted="a branch, a tag, or a commit of 40 hex digits",
            next="correct `revision` of this staging block",
        )
    commit = read_ref(place, ref) if ref else revision
    if commit and nas.is_folder(f"{place.path}/snapshots/{commit}"):
        return commit, ref
    snapshots = nas.names(f"{place.path}/snapshots")
    refs = [f"{name} = {read_ref(place, name)[:12]}" for name in _refs(place)]
    what = f"the hub cache has no revision {revision}"
    if ref and commit:
        what = f"the hub cache knows {ref} as commit {commit}, but has no snapshot of it"
    raise config_error(
        what,
        where=place.path,
        found=f"refs: {shown(refs) or 'none'}; snapshots: {shown(snapshots) or 'none'}",
        wanted=f"{place.path}/snapshots/{commit or '<commit of ' + revision + '>'}",
        next=f"{download(place, repo, commit or revision)}; or give one of these commits as `revision`",
    )


def _refs(place: Place) -> list[str]:
    refs, folders = [], [""]
    while folders:
        folder = folders.pop()
        for name in nas.names(f"{place.path}/refs/{folder}"):
            path = f"{folder}{name}"
            if nas.is_folder(f"{place.path}/refs/{path}"):
                folders.append(f"{path}/")
            else:
                refs.append(path)
    return sorted(refs)


def entries(place: Place, commit: str) -> list[Entry]:
    """Every path of a snapshot, sorted; what is not the commit's (unfinished downloads) is left out. Raises AgentError
    for names that no staged file can have, and for what is neither link nor file.
    """
    top = f"{place.path}/snapshots/{commit}"
    paths, folders, seen = [], [""], dict[str, str]()
    while folders:
        folder = folders.pop()
        for name in nas.names(f"{top}/{folder}"):
            path = f"{folder}{name}"
            if not safe_name(path):
                raise config_error(
                    "a name in the snapshot cannot be staged",
                    where=top,
                    found=repr(path),
                    wanted=f"a name of {SAFE_NAMES}",
                    next="remove it from the cache: no file of a repository is called so",
                )
            text = nas.link(f"{top}/{path}")
            if not text and nas.is_folder(f"{top}/{path}"):
                folders.append(f"{path}/")
            elif text or not name.endswith(".incomplete"):
                target = links.target(place, f"{top}/{path}", text, seen) if text else ""
                paths.append(Entry(path, text, target))
    return sorted(paths)


def way(place: Place, commit: str, entry: Entry) -> Way:
    """From a path of a snapshot to the file with its bytes."""
    link = f"{place.path}/snapshots/{commit}/{entry.path}"
    if not entry.text:
        return Way(link, (), whole=True)
    to_file = links.follow(place, links.blob_of(place, link, entry.text, entry.target))
    return to_file._replace(hops=(f"{link} -> {entry.text}", *to_file.hops))


def tree(place: Place, commit: str) -> tuple[Tree | None, str]:
    """What the commit consists of. None when the cache does not say, or says it in a way that nobody knows: then also
    what is the matter with the file, which stops nobody, for huggingface_hub does without it too.
    """
    try:
        data = nas.small(f"{place.path}/trees/{commit}.json", _TREE)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    if data is None:
        return None, f"it has more than {_TREE} bytes"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None, "it is no JSON"
    if not isinstance(value, dict) or value.get("format_version") != 1:
        version = value.get("format_version") if isinstance(value, dict) else None
        return None, f"its format_version is {str(version)[:20]}, and 1 is known"
    files = value.get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        return None, "its `files` are no objects by path"
    return Tree(files, data), ""


def version_of(path: str) -> Version:
    """Of a regular file, as its open descriptor tells. Raises AgentError when something else is there."""
    try:
        status = nas.status(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise integrity_error(
            "a file of the source went away",
            where=path,
            found="its name was there when it was asked for, and it cannot be opened",
            wanted="a regular file",
            next="run again in a minute, for clients of a NAS remember names; then download that file again",
        ) from error
    except OSError as error:
        if isinstance(error, PermissionError):
            raise
        raise AgentError(
            "a file of the source cannot be opened",
            where=path,
            found=error.strerror or str(error),
            wanted="a file that can be read",
            next="look at the mount and at the NAS, then run again",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise config_error(
            "something of the source is no regular file",
            where=path,
            found="a folder" if stat.S_ISDIR(status.st_mode) else "a socket, a pipe or a device",
            wanted="a regular file, or a link to one",
            next="put it into `skip` of this staging block",
        )
    return versions.of(status)
