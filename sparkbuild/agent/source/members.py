"""Which files of an artifact are wanted, and as what: globs over the names inside, each file by its base name.

An artifact is an archive (`.whl`, `.zip`) or, by any other name, one plain file: that file is then all there is in it.
"""

from __future__ import annotations

import difflib
import fnmatch
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkbuild.agent.ledger.ledger import SAFE_NAMES, safe_name
from sparkbuild.agent.wire.protocol import config_error, integrity_error

if TYPE_CHECKING:
    import zipfile  # 8 ms, and a plain file needs none

ARCHIVES = (".whl", ".zip")
UNREADABLE = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")


def is_archive(path: str) -> bool:
    """By its name alone. Raises AgentError for archives that are not read."""
    name = path.rpartition("/")[2]
    if name.lower().endswith(UNREADABLE):
        raise config_error(
            "this kind of archive cannot be staged from",
            found=name,
            wanted="a .whl or .zip archive, or a plain file such as a .gguf",
        )
    return name.lower().endswith(ARCHIVES)


def check_plain(name: str, globs: list[str], where: str) -> None:
    """Raise AgentError unless every glob matches the one file, and its name can be a file's in the folder."""
    for glob in globs:
        if not fnmatch.fnmatchcase(name, glob):
            raise config_error(
                f"the artifact is a single file, and {glob!r} does not match its name",
                where=where,
                found=name,
                next="correct `members` of this staging block, or leave it out",
            )
    if not safe_name(name):
        raise config_error(
            "a name that cannot be a file's in the folder",
            where=where,
            found=repr(name),
            wanted=SAFE_NAMES,
            next="give it another: its name is what the lock says (`.artifact.file`), or the end of its URL",
        )


def pick(infos: Iterable[zipfile.ZipInfo], globs: list[str], where: str) -> dict[str, str]:
    """Base name -> full name of every member that a glob matches (`*` also matches `/`), in the archive's order.

    Raises AgentError: a glob that matches nothing, two members with one base name, and members that would leave the
    folder or are not plain files (an archive with these was made to do harm, or by accident does).
    """
    plain = [info for info in infos if not info.filename.endswith("/")]
    by_base: dict[str, str] = {}
    for glob in globs:
        matching = [info for info in plain if fnmatch.fnmatchcase(info.filename, glob)]
        if not matching:
            names = [info.filename for info in plain]
            near = difflib.get_close_matches(glob, names, n=3, cutoff=0.3) or names[:3]
            raise config_error(
                f"no member of the archive matches {glob!r}",
                where=where,
                found=f"{len(names)} members, nearest: {', '.join(near)}" if names else "an archive without files",
                next="correct `members` of this staging block",
            )
        for info in matching:
            _refuse_harm(info, where)
            base = info.filename.rpartition("/")[2]
            if by_base.setdefault(base, info.filename) != info.filename:
                raise config_error(
                    f"two members of the archive would both become {base}",
                    where=where,
                    found=f"{by_base[base]} and {info.filename}",
                    next="narrow `members` of this staging block to one of them",
                )
    return by_base


def _refuse_harm(info: zipfile.ZipInfo, where: str) -> None:
    name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
    if not safe_name(name) or not safe_name(name.rpartition("/")[2]):
        what = "has a name that leaves the folder or cannot be a file's"
    elif kind not in (0, stat.S_IFREG):  # 0: made by a tool that does not say
        what = "is a symbolic link" if kind == stat.S_IFLNK else "is not a plain file"
    elif info.flag_bits & 1:
        what = "is encrypted"
    else:
        return
    what = f"{name!r} {what}"
    raise integrity_error(
        "a member of the archive cannot be staged",
        where=where,
        found=what,
        wanted=f"plain files; names of {SAFE_NAMES}",
        next="narrow `members` of this staging block to what is wanted of it",
    )
