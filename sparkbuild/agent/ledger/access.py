"""Who may change a staged file: its owner is us, root, or the owner of its folder, and not everybody may write to it.

What another user may write to at will is whole only until they do, whatever its content was when it was read. Files
that were adopted keep the owner and the mode that others gave them.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterable

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import index, ledger


class Access:
    """What is right in one staged folder. A file system without modes shows the ledger, too, as everybody's."""

    def __init__(self, store: str, dst: str) -> None:
        self._store, self._dst = store, dst
        self._owners = {0, os.geteuid(), os.stat(dst).st_uid}
        record = ledger.path_of(dst)
        self._has_modes = not (os.path.lexists(record) and os.stat(record).st_mode & stat.S_IWOTH)

    def problem(self, status: os.stat_result) -> str:
        """What is wrong with a file, in words that follow its name; "" when nothing is, and for what is no file."""
        text = ""
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_uid not in self._owners:
            text = f"belongs to {_name(status.st_uid)}, who may change it"
        elif self._has_modes and os.geteuid() in (0, status.st_uid):
            mode = stat.S_IMODE(status.st_mode)
            if mode & stat.S_IWOTH:
                text = f"may be changed by everybody (mode {mode:04o})"
            elif not mode & stat.S_IRUSR:
                text = f"may be read by nobody (mode {mode:04o})"
        return "" if text and self._is_adopted() else text

    def can_mend(self, status: os.stat_result) -> bool:
        """Without a copy: root may give a file back, its owner may set its mode."""
        return os.geteuid() in (0, status.st_uid)

    def take_back(self, names: Iterable[str], log: Callable[[str], None]) -> None:
        """Give these files the owner and the mode that staging gives, as far as this user may."""
        for name in names:
            try:
                status = os.lstat(f"{self._dst}/{name}")
            except OSError:
                continue
            text = self.problem(status)
            if text and self.can_mend(status):
                log(f"took back {self._dst}/{name}: it {text}")
                with Held(self._dst) as held:
                    held.take_back(name)

    def _is_adopted(self) -> bool:
        entry = index.entry(self._store, self._dst) if self._store else None
        return entry is not None and entry.adopted


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
