"""Other people of a node: users without root, beside the operator, who may be hostile.

    with people(node, "mallory") as [mallory]:
        mallory.sh("ln -s /srv/models /dev/shm/sparkbuild-0")

Their home is theirs (0700), they can log in with the rack's key, and whatever they left in the places where everybody
may write is removed with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.rack.node import Node
from tests.rack.proc import Result

OPEN = ("/dev/shm", "/tmp", "/var/tmp")  # where everybody may write, on the node


@dataclass(frozen=True)
class User:
    """One user of a node."""

    node: Node
    name: str
    uid: int
    gid: int
    home: str

    def run(
        self,
        argv: Sequence[str],
        *,
        text: str | bytes = "",
        timeout: float = 120,
        check: bool = False,
        env: dict[str, str] | None = None,
        umask: int = 0o022,
    ) -> Result:
        """Run a program as this user, in its home, with its groups, and without a way back to root."""
        # --pdeathsig again: a change of user drops the wish that `inside` made.
        whose = f"--reuid={self.uid} --regid={self.gid} --init-groups --no-new-privs --pdeathsig=KILL"
        become = ["setpriv", *whose.split(), "--"]
        there = ["sh", "-c", 'umask "$1" && cd && shift && exec "$@"', "sh", f"{umask:03o}"]
        given = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, **(env or {})}
        return self.node.run([*become, *there, *argv], text=text, timeout=timeout, check=check, env=given)

    def sh(self, script: str, *words: str, umask: int = 0o022) -> str:
        """What a shell script of this user prints; RackError when it fails."""
        return self.run(["sh", "-euc", script, "sh", *words], check=True, umask=umask).out


@contextmanager
def people(node: Node, *names: str, groups: Sequence[str] = ()) -> Iterator[list[User]]:
    """Users of those names, all in `groups` too (a group that is not there is made); at the end they are gone."""
    for group in groups:
        node.run(["groupadd", "-f", group], check=True)
    made: list[User] = []
    try:
        for name in names:
            node.add_user(name, *groups)
            made.append(_look(node, name))
            node.run(["chmod", "700", made[-1].home], check=True)
        yield made
    finally:
        for user in made:
            _remove(user)


def _look(node: Node, name: str) -> User:
    fields = node.run(["getent", "passwd", name], check=True).out.strip().split(":")
    return User(node, name, int(fields[2]), int(fields[3]), fields[5])


# By uid, seen from inside of the node: there that uid is this user alone.
# What a login leaves ends by itself, and a little later: until it has, the user cannot be removed.
_END = """
tries=100
while [ "$tries" -gt 0 ]; do
    left=
    for p in /proc/[0-9]*; do
        if [ "$(stat -c %u "$p" 2>/dev/null)" = "$1" ]; then left=yes; kill -9 "${p#/proc/}" 2>/dev/null; fi
    done
    if [ -z "$left" ]; then exit 0; fi
    tries=$((tries - 1)); sleep 0.1
done
echo "uid $1 still has processes" >&2; exit 1
"""


def _remove(user: User) -> None:
    uid = str(user.uid)
    user.node.run(["sh", "-c", _END, "sh", uid], check=True)
    user.node.run(["find", *OPEN, "-xdev", "-depth", "-user", uid, "-delete"])
    user.node.run(["userdel", "-r", user.name], check=True)
