"""What a mirror of one revision of a hub repository consists of: blobs that it reaches, links to them, its ref.

A cache of huggingface_hub in any of its layouts is read (docs/staging.md), and one plain layout is written: blobs are
files, links are relative. What `skip` names stays behind, with the blobs that only it reaches.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.globs import matching, unmatched
from sparkbuild.agent.hub import repository
from sparkbuild.agent.hub.links import Place, Way, blob_of
from sparkbuild.agent.hub.repository import Entry, Tree
from sparkbuild.agent.ledger.ledger import Link
from sparkbuild.agent.ledger.titles import title
from sparkbuild.agent.source import shards, sparsecopy, whole
from sparkbuild.agent.source.fileset import FileBytes, FileSet, Wanted, text_file
from sparkbuild.agent.source.versions import Version
from sparkbuild.agent.wire import words
from sparkbuild.agent.wire.protocol import config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import About, HubMirror


class _Asked(NamedTuple):
    place: Place
    repo: str
    commit: str
    tree: Tree | None
    unread: str  # why there is no tree though the cache has a file of it, "" when there is none or it was read
    wanted: list[Entry]
    skipped: list[Entry]
    globs: list[str]

    @property
    def snapshot(self) -> str:
        return f"{self.place.path}/snapshots/{self.commit}"

    def path(self, path: str) -> str:
        return f"{self.snapshot}/{path}"

    def blob(self, path: str) -> str:
        """What the tree says the blob of a path is named, "" when nothing does."""
        return self.tree.blob(path) if self.tree is not None else ""


def file_set(what: HubMirror, store: str) -> FileSet:
    """The files and links of one revision, named from the folder `models--org--name` of the mirror on.

    The source is only looked at: names, link texts, sizes of opened files. Raises AgentError, kind "config" for what is
    asked wrongly, "integrity" for a cache that is not whole or contradicts itself.
    """
    place = repository.find(inside(store, what["cache"]), what["repo"])
    commit, ref = repository.resolve(place, what["repo"], what.get("revision") or "main")
    globs = list(what.get("skip") or [])
    wanted: list[Entry] = []
    skipped: list[Entry] = []
    for entry in repository.entries(place, commit):
        (skipped if matching(entry.path, globs) else wanted).append(entry)
    asked = _Asked(place, what["repo"], commit, *repository.tree(place, commit), wanted, skipped, globs)
    _refuse_sparse(asked)
    _refuse_incomplete(asked)
    blobs = _blobs(asked)
    if asked.tree is None:
        _refuse_unfinished(asked)
    files = [*(_blob(asked, name, file, entry) for name, (file, entry) in blobs.items()), *_real_files(asked)]
    again = f"remove it, then {_download(asked)}"
    files = [file._replace(again=again) for file in files]
    links = [_link(asked, entry) for entry in wanted if entry.text]
    total = sum(file.size for file in files)
    refs = {name for name in (ref, "main") if name and repository.read_ref(place, name) == commit}
    files += [text_file(f"refs/{name}", commit) for name in sorted(refs)]
    if asked.tree is not None and not _left_out(asked):
        files.append(_tree(asked, asked.tree))
    return FileSet(files, links, _about(asked, ref, total))


def _refuse_incomplete(asked: _Asked) -> None:
    """Every file that the commit has, or that its index names, is in the snapshot or skipped."""
    if not asked.wanted:
        raise config_error(
            "nothing of this revision is left to stage",
            where=asked.snapshot,
            found=f"{words.files(len(asked.skipped))}, all skipped" if asked.skipped else "an empty snapshot",
            wanted="at least one file that no glob of `skip` matches",
            next="correct `skip` of this staging block" if asked.skipped else _download(asked),
        )
    there = {entry.path for entry in (*asked.wanted, *asked.skipped)}
    paths = {entry.path for entry in asked.wanted}
    expected = set(asked.tree.files) if asked.tree is not None else _indexed(asked) | shards.of_sets(paths)
    missing = sorted(path for path in expected - there if not matching(path, asked.globs))
    if missing:
        unfinished = _unfinished(asked, [asked.blob(path) for path in missing])
        raise integrity_error(
            "the snapshot is not whole",
            where=asked.snapshot,
            found=f"{len(missing)} of {len(expected)} files are missing: {words.shown(missing)}{unfinished}",
            wanted="every file of the commit, but those that `skip` leaves out",
            next=f"{_download(asked)}; or put what is not needed into `skip`",
        )


def _refuse_unfinished(asked: _Asked) -> None:
    """Without a tree nobody knows which file a broken off download is of, nor whether it is of this revision; and a
    file of the snapshot that is no link is only what its name says.
    """
    linked = {entry.path for entry in (*asked.wanted, *asked.skipped) if entry.text}
    folders = {os.path.dirname(entry.path) for entry in asked.wanted}
    there = [os.path.join(folder, name) for folder in folders for name in nas.names(asked.path(folder).rstrip("/"))]
    begun = whole.begun([path for path in there if not matching(path, asked.globs)])
    left = sorted(path for file, path in begun.items() if not {file, path} & linked)
    if left:
        raise integrity_error(
            "a download into the snapshot did not end",
            where=asked.snapshot,
            found=words.shown(left),
            wanted="whole files, or links to blobs",
            next=f"{_download(asked)}; what is left of a download that did end: put it into `skip`, or remove it",
        )
    blobs = nas.names(f"{asked.place.path}/blobs")
    parts = [name for name in blobs if name.endswith(".incomplete") and name.partition(".")[0] not in blobs]
    # An index, or names such as -00001-of-00003, tell which weights there must be, and that was looked at: what is left
    # of a download is then most often of another revision.
    known = _indexed(asked) | shards.of_sets({entry.path for entry in asked.wanted})
    if parts and not known:
        raise integrity_error(
            "a download into the hub cache did not end, and nothing tells which file it is of",
            where=f"{asked.place.path}/blobs",
            found=words.shown(parts),
            wanted=f"no unfinished download, or trees/{asked.commit}.json, which tells what the commit consists of",
            next=f"{_download(asked)}; what is left then is of another revision: remove it",
        )


def _refuse_sparse(asked: _Asked) -> None:
    """A sparse copy reads as any file does. What is a link has a hash for its name, which would tell."""
    for manifest in (*asked.wanted, *asked.skipped):
        folder, name = os.path.split(manifest.path)
        if name == sparsecopy.MANIFEST:
            unproven = [entry.path for entry in asked.wanted if not entry.text and not asked.blob(entry.path)]
            beside = [path for path in unproven if os.path.dirname(path) == folder]
            sparsecopy.refuse_whole(asked.path(manifest.path), beside)


def _download(asked: _Asked) -> str:
    return repository.download(asked.place, asked.repo, asked.commit)


def _unfinished(asked: _Asked, blobs: list[str]) -> str:
    """What unfinished downloads there are: of these blobs, or any when it is not known which are missing."""
    parts = [name for name in nas.names(f"{asked.place.path}/blobs") if name.endswith(".incomplete")]
    if any(blobs):
        parts = [name for name in parts if name.partition(".")[0] in blobs]
    return f"; a download is unfinished: {words.shown(parts)}" if parts else ""


def _indexed(asked: _Asked) -> set[str]:
    """The shards that the indexes of the snapshot name."""
    named = set()
    for entry in asked.wanted:
        if entry.path.endswith(shards.INDEXES):
            way = repository.way(asked.place, asked.commit, entry)
            if way.whole:
                named |= shards.of_index(way.file, entry.path)
    return named


def _blobs(asked: _Asked) -> dict[str, tuple[str, Entry]]:
    """Blob -> the file with its bytes and the first entry that wants it. Raises AgentError for links to nothing."""
    files: dict[str, tuple[str, Entry]] = {}
    broken: list[tuple[Entry, str, Way]] = []
    for entry in asked.wanted:
        if not entry.text:
            continue
        blob = blob_of(asked.place, asked.path(entry.path), entry.text, entry.target)
        _refuse_another(asked, entry, blob)
        if blob in files:
            continue
        way = repository.way(asked.place, asked.commit, entry)
        files[blob] = way.file, entry
        if not way.whole:
            broken.append((entry, blob, way))
    if broken:
        entry, _, way = broken[0]
        more = f"; so do {words.shown([other.path for other, _, _ in broken[1:]])}" if broken[1:] else ""
        raise integrity_error(
            "a link of the snapshot leads to nothing",
            where=asked.path(entry.path),
            found="; ".join(way.hops) + more + _unfinished(asked, [blob for _, blob, _ in broken]),
            wanted="the file with its bytes at the end of the links",
            next=f"{_download(asked)}; or put it into `skip`",
        )
    _refuse_shared(asked)
    return files


def _refuse_shared(asked: _Asked) -> None:
    """Two files of one sharded set with one blob, unless the commit itself has them so."""
    linked = [entry for entry in asked.wanted if entry.text and not asked.blob(entry.path)]
    places = ((entry.path, blob_of(asked.place, asked.path(entry.path), entry.text, entry.target)) for entry in linked)
    same = shards.with_one_content(places)
    if same is not None:
        one, other, blob = same
        paths = " ".join(shlex.quote(asked.path(path)) for path in (one, other))
        raise integrity_error(
            "two files of one sharded set are links to the same blob",
            where=asked.snapshot,
            found=f"{one} and {other} -> blobs/{blob}",
            wanted="a blob of its own for each",
            next=f"rm {paths}, then {_download(asked)}",
        )


def _refuse_another(asked: _Asked, entry: Entry, blob: str) -> None:
    """A link to the blob of another file: right bytes for the blob, wrong ones for the path."""
    wanted = asked.blob(entry.path)
    if wanted and wanted != blob:
        raise integrity_error(
            "a link of the snapshot leads to the blob of another file",
            where=asked.path(entry.path),
            found=f"-> {entry.text}",
            wanted=f"blob {wanted}, as trees/{asked.commit}.json says",
            next=f"remove that link, then {_download(asked)}",
        )


def _blob(asked: _Asked, name: str, file: str, entry: Entry) -> Wanted:
    identity = {"kind": "hub-blob", "etag": name}
    source = FileBytes(kind="file", path=file)
    wanted = Wanted(f"blobs/{name}", source, _version(asked, file, entry).size, "", identity)
    return _hashed(wanted._replace(title=title(wanted.name, [entry.path])), name)


def _version(asked: _Asked, file: str, entry: Entry) -> Version:
    """Of a file of the source. What the tree says of its size is only good for an early no: its hash decides."""
    version = repository.version_of(file)
    size = version.size
    wanted = asked.tree.size(entry.path) if asked.tree is not None else None
    if wanted not in (None, size):
        raise integrity_error(
            "a file of the hub cache has another size than its commit says",
            where=file,
            found=f"{size} bytes",
            wanted=f"{wanted} bytes, the size of {entry.path} in trees/{asked.commit}.json",
            next=f"remove it, then {_download(asked)}",
        )
    return version


def _hashed(wanted: Wanted, name: str) -> Wanted:
    """With the hash that a name of the hub is: 64 digits are sha256, 40 are sha1 of git's blob."""
    return wanted._replace(sha256=name) if len(name) == 64 else wanted._replace(sha1=name)


def _real_files(asked: _Asked) -> list[Wanted]:
    files = []
    for entry in asked.wanted:
        if entry.text:
            continue
        file = asked.path(entry.path)
        blob = asked.blob(entry.path)
        identity = {"kind": "hub-file", "repo": asked.repo, "commit": asked.commit, "path": entry.path}
        if blob:
            identity["lfs_sha256" if len(blob) == 64 else "blob_id"] = blob
        version = _version(asked, file, entry)
        name, source = f"snapshots/{asked.commit}/{entry.path}", FileBytes(kind="file", path=file)
        if not blob:  # nothing says what it is by content
            whole.refuse_part(file, entry.path, version.size, _download(asked))
            identity["version"] = source["version"] = version.text
        wanted = Wanted(name, source, version.size, "", identity)
        files.append(_hashed(wanted, blob) if blob else wanted)
    return files


def _link(asked: _Asked, entry: Entry) -> Link:
    blob = blob_of(asked.place, asked.path(entry.path), entry.text, entry.target)
    up = "../" * (2 + entry.path.count("/"))
    return Link(f"snapshots/{asked.commit}/{entry.path}", f"{up}blobs/{blob}")


def _tree(asked: _Asked, tree: Tree) -> Wanted:
    name = f"trees/{asked.commit}.json"
    sha256 = hashlib.sha256(tree.data).hexdigest()
    source = FileBytes(kind="file", path=f"{asked.place.path}/{name}")
    return Wanted(name, source, len(tree.data), sha256, {"kind": "hub-tree", "sha256": sha256})


def _left_out(asked: _Asked) -> bool:
    """Is any file of the commit skipped? Then the mirror has no tree: with it, huggingface_hub calls the mirror
    incomplete, and a shortened one would make it believe that the commit has no other files.
    """
    return asked.tree is not None and any(matching(path, asked.globs) for path in asked.tree.files)


def _about(asked: _Asked, ref: str, total: int) -> About:
    paths = {entry.path for entry in asked.skipped}
    sizes: list[int | None] = [None] * len(paths)
    if asked.tree is not None:
        paths |= {path for path in asked.tree.files if matching(path, asked.globs)}
        sizes = [asked.tree.size(path) for path in paths]
    known = sum(size for size in sizes if size is not None)
    about: About = {"repo": asked.repo, "commit": asked.commit, "ref": ref, "files": len(asked.wanted), "bytes": total}
    about["skipped"] = {"files": len(paths), "bytes": None if None in sizes else known}
    if asked.unread:
        about["unread_tree"] = asked.unread
    if unused := unmatched(asked.globs, paths):
        about["unused_skip"] = unused
    return about
