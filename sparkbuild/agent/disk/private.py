"""A folder of this user alone, in a place where everybody may write: another user may have made it first."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.wire.protocol import AgentError


def private(path: str, what: str) -> Held:
    """A folder of this user alone where everybody may write, made when it is not there; `what` it is, for a message.
    AgentError when somebody else was there first: what is in it may lead anywhere, and be read by anybody.
    """
    above, _, name = path.rpartition("/")
    with Held(above or "/") as place:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=place.fd)
        try:
            folder = place.folder(name)
        except NotADirectoryError:
            raise _not_ours(path, what) from None
    owner = os.fstat(folder.fd)
    if owner.st_uid != os.geteuid():
        folder.close()
        raise _not_ours(path, what)
    if stat.S_IMODE(owner.st_mode) != 0o700:
        os.fchmod(folder.fd, 0o700)
    return folder


def _not_ours(path: str, what: str) -> AgentError:
    state = os.lstat(path)
    kind = "a link" if stat.S_ISLNK(state.st_mode) else "a folder" if stat.S_ISDIR(state.st_mode) else "a file"
    with suppress(KeyError):
        kind += f" of {pwd.getpwuid(state.st_uid).pw_name}"
    return AgentError(
        f"{what} belongs to somebody else",
        where=path,
        found=f"{kind} (uid {state.st_uid})",
        wanted=f"a folder of uid {os.geteuid()}, mode 0700, or nothing yet",
        next=f"on that node: ls -ld {path}; ask its owner, or an administrator, to remove it: nothing behind it was "
        "touched",
    )
