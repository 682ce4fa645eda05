"""A tether: when this process is gone, however it ended, the groups of its children are ended too.

A SIGKILL lets nobody clean up. So a tiny shell, in a session of its own, reads from a pipe whose other end only this
process holds: the numbers of the groups as they come and go. When the pipe ends, it ends what is still there. The
children themselves know nothing of it: their parent, exit code, terminal and group stay as they are. (PR_SET_PDEATHSIG
would fire when the thread that started the child ends, and a supervisor between the two would stand in the way of
signals and codes.)
"""

from __future__ import annotations

import contextlib
import os
import threading

GRACE = 1  # seconds between SIGTERM and SIGKILL, once this process is gone

_SCRIPT = f"""
live=" "
while read -r sign group; do
  case $sign in
    +) live="$live$group " ;;
    -) live="${{live%% $group *}} ${{live#* $group }}" ;;
  esac
done
[ "$live" = " " ] && exit
for group in $live; do kill -s TERM -- "-$group"; done
sleep {GRACE}
for group in $live; do kill -s KILL -- "-$group"; done
"""


class Tether:
    """Holds process groups. The shell is started with the first of them: 0.2 ms, and nobody waits for it."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._guard = threading.Lock()
        self._shell = 0
        self._pipe = -1

    def hold(self, group: int) -> None:
        """End this group when this process is gone."""
        with self._guard:
            self._groups.add(group)
            self._tell("+", group)

    def release(self, group: int) -> None:
        """The group is ended; its number may be another's soon."""
        with self._guard:
            if group in self._groups:
                self._groups.discard(group)
                self._tell("-", group)

    def _tell(self, sign: str, group: int) -> None:
        try:
            if self._shell:
                os.write(self._pipe, f"{sign} {group}\n".encode())
        except BrokenPipeError:  # somebody killed the shell
            os.close(self._pipe)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._shell, 0)
            self._shell = 0
        if not self._shell:
            with contextlib.suppress(OSError):  # no shell here: children may outlive a SIGKILL, as everywhere else
                self._start()

    def _start(self) -> None:
        read, write = os.pipe()
        try:
            self._shell = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT],
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,  # a ctrl-C at the terminal is not for it
            )
        except OSError:
            os.close(write)
            raise
        finally:
            os.close(read)
        self._pipe = write
        os.write(write, "".join(f"+ {group}\n" for group in sorted(self._groups)).encode())
