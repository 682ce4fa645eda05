"""What is wanted of a plain folder: regular files by globs over their paths in it, each under the same path.

Links in the folder are followed as the kernel does and become regular files. Nobody can say what such a file is by
content, so its identity is its path with its version (see versions), as an *open* descriptor has it. It is asked for
one thing only: is it still the file that was read then? When it is not, nothing of an earlier copy is continued or
kept. What is staged is never checked by it, but by its ledger.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.globs import matching, unmatched
from sparkbuild.agent.ledger.ledger import SAFE_NAMES, safe_name
from sparkbuild.agent.source import halfstaged, localdir, shards, versions, whole
from sparkbuild.agent.source.fileset import FileBytes, FileSet, Wanted
from sparkbuild.agent.wire.layout import OURS
from sparkbuild.agent.wire.protocol import AgentError, config_error, integrity_error
from sparkbuild.agent.wire.words import files, shown

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import About, Folder

_HOPS = 8


class _Entry(NamedTuple):
    """A path that is no folder: `text` is that of a link, "" for what is not one."""

    name: str
    text: str


def file_set(what: Folder, store: str) -> FileSet:
    """The wanted files of a folder. Raises AgentError, kind "config": nothing matches, a link that leads to nothing or
    to a folder, what is no file, a name that no staged file can have; kind "integrity": files that are missing, or are
    not all there.
    """
    path = inside(store, what["path"])
    try:
        top = nas.true_path(path)  # links in it mean what the kernel takes them for, however the folder was reached
    except (FileNotFoundError, NotADirectoryError):
        raise _not_there(path) from None
    members, skip = list(what.get("members") or ["**"]), list(what.get("skip") or [])
    everything, tools = _walk(top)
    matched = [entry for entry in everything if matching(entry.name, members)]
    wanted = [entry for entry in matched if not matching(entry.name, skip)]
    _refuse_nothing(path, everything, members, wanted)
    notes, unfinished = _notes(top, tools)
    missing = _missing(top, everything, wanted, {*notes, *unfinished})
    begun = _begun(everything, {entry.name for entry in wanted}, skip, notes)
    _refuse_missing(
        path, [name for name in missing if matching(name, members) and not matching(name, skip)], unfinished, begun
    )
    files, outside = [], {}
    for entry in wanted:
        if not safe_name(entry.name):
            raise config_error(
                "a name that cannot be staged",
                where=top,
                found=repr(entry.name),
                wanted=f"a name of {SAFE_NAMES}",
                next="rename it, or put it into `skip`",
            )
        place = _end(top, entry)
        if entry.text and not place.startswith(f"{top}/"):
            outside[entry.name] = place
        files.append(_wanted(top, entry, place, notes.get(entry.name)))
    _refuse_shared(top, files)
    about: About = {"files": len(files), "bytes": sum(file.size for file in files)}
    about["skipped"] = {"files": len(everything) - len(wanted)}
    if outside:
        about["outside"] = outside
    if tools:
        about["left_out"] = tools
    names = [*(entry.name for entry in everything), *missing]
    if unused := unmatched(skip, names):
        about["unused_skip"] = unused
    return FileSet(files, about=about)


def _not_there(path: str) -> AgentError:
    if not os.path.exists(path):
        return nas.not_there("the folder to stage from is not there", path)
    folder, name = os.path.split(path)
    return config_error(
        "what is to be staged from is no folder",
        where=path,
        found="a file",
        wanted="a folder",
        next=f'give its folder, {folder}, as `src`, with members = ["{name}"]',
    )


def _notes(top: str, tools: Iterable[str]) -> tuple[dict[str, localdir.Note], list[str]]:
    """See localdir.notes, for each folder of huggingface_hub in the source."""
    by_path: dict[str, localdir.Note] = {}
    unfinished: list[str] = []
    for tool in tools:
        if tool.endswith(localdir.HUB):
            notes, others = localdir.notes(top, tool.removesuffix(localdir.HUB))
            by_path |= notes
            unfinished += others
    return by_path, unfinished


def _missing(top: str, everything: list[_Entry], wanted: list[_Entry], told: set[str]) -> list[str]:
    """What is not there of the sets that wanted files are of, of their indexes, and of `told`, what tools tell of."""
    named = set(told)
    for entry in wanted:
        if entry.name.endswith(shards.INDEXES):
            named |= shards.of_index(_end(top, entry), entry.name)
    expected = named | shards.of_sets(entry.name for entry in wanted)
    return sorted(expected - {entry.name for entry in everything})


def _begun(
    everything: list[_Entry], wanted: Collection[str], skip: list[str], notes: Collection[str]
) -> dict[str, str]:
    """See whole.begun, for wanted files. What hub downloads noted of a file proves it better than a name does."""
    begun = whole.begun([entry.name for entry in everything if not matching(entry.name, skip)])
    return {name: left for name, left in begun.items() if name not in notes and (name in wanted or left in wanted)}


def _refuse_missing(path: str, missing: list[str], unfinished: list[str], begun: dict[str, str]) -> None:
    if not missing and not begun:
        return
    gone = [name for name in missing if not name.endswith(".incomplete")]  # such a one is there: of which, nobody says
    broken_off = [name for name in missing if name in unfinished] + [
        f"{name} ({os.path.basename(left)} is there)" for name, left in begun.items()
    ]
    faults = [f"{files(len(gone))} missing: {shown(gone)}"] if gone else []
    faults += [f"downloads that did not end: {shown(broken_off)}"] if broken_off else []
    advice = "download or copy again what is missing; or put what is not needed into `skip`"
    raise integrity_error(
        "the folder to stage from is not whole",
        where=path,
        found="; ".join(faults),
        wanted="every file of a sharded set, of an index, and of what was downloaded there",
        next=f"{advice}, also what a download left that did end" if begun else advice,
    )


def _walk(top: str) -> tuple[list[_Entry], dict[str, int]]:
    """Every path that is no folder; and the folders that tools keep for themselves, at whatever depth, with the number
    of files in each. `.sparkbuild` is what staging keeps for itself.
    """
    tools: dict[str, int] = {}
    entries, folders = [], [""]
    while folders:
        folder = folders.pop()
        for name in nas.names(f"{top}/{folder}"):
            path = f"{folder}{name}"
            if name == OURS:
                halfstaged.refuse_one(f"{top}/{folder}".rstrip("/"))
                continue
            if localdir.of_tool(path):
                tools[path] = localdir.count(f"{top}/{path}")
                continue
            text = nas.link(f"{top}/{path}")
            if not text and nas.is_folder(f"{top}/{path}"):
                folders.append(f"{path}/")
            else:
                entries.append(_Entry(path, text))
    return sorted(entries), tools


def _end(top: str, entry: _Entry) -> str:
    """Where the bytes of a path are."""
    here, hops, text = f"{top}/{entry.name}", [], entry.text
    what = "a link in the folder leads in a circle, or through too many others"
    for _ in range(_HOPS):
        if not text:
            return here
        hops.append(f"{here} -> {text}")
        link, here = here, os.path.normpath(os.path.join(os.path.dirname(here), text))  # as a message says it
        try:
            here = nas.target(link, text)
            text = nas.link(here)
        except (FileNotFoundError, NotADirectoryError):
            what = "a link in the folder leads to nothing"
            hops.append(f"{here} is not there")
            break
    raise config_error(
        what,
        where=f"{top}/{entry.name}",
        found="; ".join(hops),
        wanted=f"a regular file after at most {_HOPS} links",
        next="mend the link, or put it into `skip`",
    )


def _wanted(top: str, link: _Entry, place: str, note: localdir.Note | None) -> Wanted:
    """`place` is where the bytes are: the path itself, or what it links to. `note`: what is known of its download."""
    try:
        status = nas.status(place)
    except OSError as error:
        if error.errno != errno.ENXIO:  # what opening a socket says
            raise
        status = None
    if status is None or not stat.S_ISREG(status.st_mode):
        what = "a folder" if status is not None and stat.S_ISDIR(status.st_mode) else "a socket, a pipe or a device"
        raise config_error(
            "only regular files can be staged",
            where=f"{top}/{link.name}",
            found=f"a link to {place}, which is {what}" if link.text else what,
            wanted="a regular file, or a link to one",
            next=f"put {link.name} into `skip`, or narrow `members`",
        )
    version = versions.of(status)
    sha256, sha1 = note.digests(version) if note is not None else ("", "")
    again = f"fetch it anew; or, if it was changed on purpose, remove {note.path}" if note is not None else ""
    if not sha256 and not sha1:
        whole.refuse_part(
            place, link.name, version.size, "fetch it anew, from where the folder was downloaded or copied"
        )
    text = version.text  # one string for both: of 100,000 files
    identity = {"kind": "folder-file", "path": link.name, "version": text}
    source = FileBytes(kind="file", path=place, version=text)
    return Wanted(link.name, source, version.size, sha256, identity, sha1, again=again)


def _refuse_shared(top: str, wanted: list[Wanted]) -> None:
    same = shards.with_one_content((file.name, file.path) for file in wanted)
    if same is not None:
        one, other, place = same
        raise config_error(
            "two files of one sharded set are the same file",
            where=top,
            found=f"{one} and {other} -> {place}",
            wanted="a file of its own for each",
            next="mend the link, or put one of them into `skip`",
        )


def _refuse_nothing(path: str, everything: list[_Entry], members: list[str], wanted: list[_Entry]) -> None:
    if not everything:
        raise nas.empty("the folder to stage from is empty", path, "the files that are to be staged")
    names = [entry.name for entry in everything]
    empty = unmatched(members, names)
    if empty or not wanted:
        raise config_error(
            f"nothing in the folder matches {', '.join(map(repr, empty))}" if empty else "all of the folder is skipped",
            where=path,
            found=f"{files(len(names))}: {shown(names)}",
            wanted="a file for each glob of `members`, and at least one that `skip` leaves",
            next="correct `members` or `skip` of this staging block",
        )
