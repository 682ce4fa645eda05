"""Files of others under the names that are to be staged: what has other content is never replaced.

Exempt is what is wrong by its own name (a blob of a hub cache is named by its hash), what is empty, and a ref of a hub
cache that says what is wanted with white space around it: the newline that hand-made caches have there is a fault, by
which huggingface_hub does not find the revision offline.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Collection

from sparkbuild.agent.ledger import folder, links
from sparkbuild.agent.source.fileset import FileSet, Wanted
from sparkbuild.agent.stage.adopt import Adopter
from sparkbuild.agent.wire.protocol import AgentError

_SHOWN = 5
_REFS = "refs/"
_REF = 1024  # bytes of a ref that anyone would read
_GLANCE = 1 << 20  # bytes of a file that a plan compares
_GLANCES = 64  # files
Differs = Callable[[str, Wanted, os.stat_result], bool]


def in_the_way(dst: str, file_set: FileSet, ours: Collection[str], differs: Differs) -> list[str]:
    """The wanted names under which something of others stands. `ours`: the names of what was staged here. `differs`
    says whether the file at a path has other content than a wanted one.
    """
    by_name = {item.name: item for item in file_set.files}
    names = []
    for item in file_set.files:
        if item.name not in ours and item.identity.get("kind") != "hub-blob":
            seen = _standing(dst, item.name)
            path = f"{dst}/{item.name}"
            if seen is not None and (
                stat.S_ISLNK(seen.st_mode) or (differs(path, item, seen) and not _says(path, item, seen))
            ):
                names.append(item.name)
    for link in file_set.links:
        seen = _standing(dst, link.name) if link.name not in ours and links.problem(dst, link) else None
        if seen is None:
            continue
        path = f"{dst}/{link.name}"
        if stat.S_ISLNK(seen.st_mode):
            other = os.path.basename(os.readlink(path)) != os.path.basename(link.text)  # the name of a blob
        else:
            item_of = by_name.get(os.path.normpath(os.path.join(os.path.dirname(link.name), link.text)))
            other = item_of is None or differs(path, item_of, seen)
        if other:
            names.append(link.name)
    return sorted(names)


def proven(path: str, item: Wanted, adopter: Adopter) -> bool:
    """Whether the content of a file is the wanted one."""
    if item.sha256 or item.sha1:
        return adopter.by_hash(path, item, item.sha256, item.sha1).record is not None
    seen = adopter.by_source(path, item)
    return seen.record is not None and not seen.bad


def glance(adopter: Adopter) -> Differs:
    """For a plan: by size, and of small files by content. What it does not see, the staging sees."""
    left = _GLANCES

    def differs(path: str, item: Wanted, seen: os.stat_result) -> bool:
        nonlocal left
        if seen.st_size != item.size:
            return True
        left -= item.size <= _GLANCE
        return item.size <= _GLANCE and left >= 0 and not proven(path, item, adopter)

    return differs


def _says(path: str, item: Wanted, seen: os.stat_result) -> bool:
    """Whether a ref holds the wanted commit, and white space."""
    return seen.st_size <= _REF and _text(path).strip() == _ref(item)


def _ref(item: Wanted) -> str | None:
    """The commit that a ref is to say; None of what is no ref."""
    return item.source["text"] if item.name.startswith(_REFS) and item.source["kind"] == "text" else None


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(fd, _REF).decode(errors="replace")
    finally:
        os.close(fd)


def refused(dst: str, names: list[str], file_set: FileSet) -> AgentError:
    """The error that names them, and what the refs among them say."""
    refs = {item.name: commit for item in file_set.files if (commit := _ref(item)) is not None}
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    aside = shlex.quote(f"{dst}.before")
    paths = " ".join(shlex.quote(f"{dst}/{name}") for name in names[:_SHOWN])
    return AgentError(
        "files that sparkbuild did not stage, with other content, have names that are to be staged",
        kind="config",
        where=dst,
        found=", ".join(_shown(dst, name, refs) for name in names[:_SHOWN]) + more,
        wanted="the same content, or nothing there",
        next=f"mkdir -p {aside} && mv --backup=numbered -t {aside} {paths}"
        + (", and so on" if more else "")
        + "; or give the block another `dst`",
    )


def _shown(dst: str, name: str, refs: dict[str, str]) -> str:
    if name not in refs:
        return name
    path = f"{dst}/{name}"
    held = f"a link to {os.readlink(path)}" if os.path.islink(path) else repr(_text(path)[:60])
    return f"{name} ({held}, wanted {refs[name]!r})"


def _standing(dst: str, name: str) -> os.stat_result | None:
    """What stands under a name, None for nothing, a folder, and what is empty."""
    if folder.through_link(dst, name):
        return None
    try:
        status = os.lstat(f"{dst}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size):
        return None
    return status
