"""What is wanted of a plain folder: regular files by globs over their paths in it, each under the same path.

Links in the folder are followed hop by hop and become regular files. Nobody can say what such a file is by content, so
its identity is its path with size, mtime and ctime as an *open* descriptor has them. They are asked for one thing only:
is it still the file that was read then? When one differs, nothing of an earlier copy is continued or kept. The ctime is
among them because tools and people set an mtime back, and nobody can set back a ctime. What is staged is never checked
by them, but by its ledger.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.globs import matching
from sparkbuild.agent.hub.repo import files, shown
from sparkbuild.agent.ledger.ledger import OURS, SAFE_NAMES, safe_name
from sparkbuild.agent.source import shards
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.wish import Wanted, Wish
from sparkbuild.agent.wire.protocol import AgentError

_HOPS = 8


class _Found(NamedTuple):
    """A path that is no folder: `text` is that of a link, "" for what is not one."""

    name: str
    text: str


def wish(what: dict[str, Any], store: str, archives: Archives) -> Wish:  # noqa: ARG001 - as every planner
    """The wanted files of a folder. `what`: {"kind": "folder", "path", "members": [globs], all when empty, "skip":
    [globs]}.

    `about`: {"files", "bytes", "skipped": {"files"}, "outside": {name: where a link leads that leaves the folder},
    "unused_skip": globs of `skip` that match nothing}, the last two only where there are some.
    Raises AgentError, kind "config": nothing matches, a link that leads to nothing or to a folder, what is no file, a
    name that no staged file can have.
    """
    path = inside(store, what["path"])
    try:
        top = nas.true_path(path)  # links in it mean what the kernel takes them for, however the folder was reached
    except (FileNotFoundError, NotADirectoryError):
        raise _not_there(path) from None
    members, skip = list(what.get("members") or ["**"]), list(what.get("skip") or [])
    everything = _walk(top)
    matched = [found for found in everything if matching(found.name, members)]
    wanted = [found for found in matched if not matching(found.name, skip)]
    _refuse_nothing(path, everything, members, wanted)
    files, outside = [], {}
    for found in wanted:
        if not safe_name(found.name):
            raise AgentError(
                "a name that cannot be staged",
                kind="config",
                where=top,
                found=repr(found.name),
                wanted=f"a name of {SAFE_NAMES}",
                next="rename it, or put it into `skip`",
            )
        place = _end(top, found)
        if found.text and not place.startswith(f"{top}/"):
            outside[found.name] = place
        files.append(_wanted(top, found, place))
    _refuse_shared(top, files)
    about: dict[str, Any] = {"files": len(files), "bytes": sum(file.size for file in files)}
    about |= {"skipped": {"files": len(everything) - len(wanted)}, **({"outside": outside} if outside else {})}
    unused = [glob for glob in skip if not any(matching(found.name, [glob]) for found in everything)]
    return Wish(files, about=about | ({"unused_skip": unused} if unused else {}))


def _not_there(path: str) -> AgentError:
    if not os.path.exists(path):
        return nas.not_there("the folder to stage from is not there", path)
    folder, name = os.path.split(path)
    return AgentError(
        "what is to be staged from is no folder",
        kind="config",
        where=path,
        found="a file",
        wanted="a folder",
        next=f'give its folder, {folder}, as `src`, with members = ["{name}"]',
    )


def _walk(top: str) -> list[_Found]:
    """Every path that is no folder; `.sparkbuild` is what staging keeps for itself, at whatever depth."""
    found, folders = [], [""]
    while folders:
        folder = folders.pop()
        for name in nas.names(f"{top}/{folder}"):
            path = f"{folder}{name}"
            if name == OURS:
                continue
            text = nas.link(f"{top}/{path}")
            if not text and nas.is_folder(f"{top}/{path}"):
                folders.append(f"{path}/")
            else:
                found.append(_Found(path, text))
    return sorted(found)


def _end(top: str, found: _Found) -> str:
    """Where the bytes of a path are."""
    here, hops, text = f"{top}/{found.name}", [], found.text
    what = "a link in the folder leads in a circle, or through too many others"
    for _ in range(_HOPS):
        if not text:
            return here
        hops.append(f"{here} -> {text}")
        here = os.path.normpath(os.path.join(os.path.dirname(here), text))
        try:
            text = nas.link(here)
        except (FileNotFoundError, NotADirectoryError):
            what = "a link in the folder leads to nothing"
            hops.append(f"{here} is not there")
            break
    raise AgentError(
        what,
        kind="config",
        where=f"{top}/{found.name}",
        found="; ".join(hops),
        wanted=f"a regular file after at most {_HOPS} links",
        next="mend the link, or put it into `skip`",
    )


def _wanted(top: str, link: _Found, place: str) -> Wanted:
    """`place` is where the bytes are: the path itself, or what it links to."""
    try:
        found = nas.status(place)
    except OSError as error:
        if error.errno != errno.ENXIO:  # what opening a socket says
            raise
        found = None
    if found is None or not stat.S_ISREG(found.st_mode):
        what = "a folder" if found is not None and stat.S_ISDIR(found.st_mode) else "a socket, a pipe or a device"
        raise AgentError(
            "only regular files can be staged",
            kind="config",
            where=f"{top}/{link.name}",
            found=f"a link to {place}, which is {what}" if link.text else what,
            wanted="a regular file, or a link to one",
            next=f"put {link.name} into `skip`, or narrow `members`",
        )
    identity = {"kind": "folder-file", "path": link.name, **nas.version(found)}
    return Wanted(link.name, {"kind": "file", "path": place}, found.st_size, "", identity)


def _refuse_shared(top: str, found: list[Wanted]) -> None:
    same = shards.with_one_content((file.name, file.source["path"]) for file in found)
    if same is not None:
        one, other, place = same
        raise AgentError(
            "two files of one sharded set are the same file",
            kind="config",
            where=top,
            found=f"{one} and {other} -> {place}",
            wanted="a file of its own for each",
            next="mend the link, or put one of them into `skip`",
        )


def _refuse_nothing(path: str, everything: list[_Found], members: list[str], wanted: list[_Found]) -> None:
    if not everything:
        raise nas.empty("the folder to stage from is empty", path, "the files that are to be staged")
    empty = [glob for glob in members if not any(matching(found.name, [glob]) for found in everything)]
    if empty or not wanted:
        names = [found.name for found in everything]
        raise AgentError(
            f"nothing in the folder matches {', '.join(map(repr, empty))}" if empty else "all of the folder is skipped",
            kind="config",
            where=path,
            found=f"{files(len(names))}: {shown(names)}",
            wanted="a file for each glob of `members`, and at least one that `skip` leaves",
            next="correct `members` or `skip` of this staging block",
        )
