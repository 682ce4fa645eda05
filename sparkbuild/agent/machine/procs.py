"""Looking at processes and ports through /proc, without touching either."""

from __future__ import annotations

import os
import pwd
import threading
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.machine.sockets import TABLES, Listener, Listeners, listeners

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkbuild.agent.wire.records import Holder


def boot_id() -> str:
    """This boot's id: a pid from another boot says nothing."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such live process.

    A zombie whose other threads still run is alive: these hold its ports and memory until they are gone too.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # the command name in parentheses may itself hold spaces and parentheses
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1):
        return None
    return int(fields[19])


def started(pid: int) -> float:
    """When a process started, in unix seconds to a second or so; 0.0 when it is gone."""
    ticks = start_ticks(pid)
    if ticks is None:
        return 0.0
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def has_processes(uid: int) -> bool:
    """Whether a user has any processes here."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == uid:
                return True
        except OSError:
            continue
    return False


def is_same(pid: int, ticks: int, boot: str) -> bool:
    """True when the process that was recorded is still alive."""
    return pid > 0 and boot == boot_id() and start_ticks(pid) == ticks


def sessions() -> dict[int, set[int]]:
    """All processes by session; a lane is the session that its recorded process leads. A reused pid is in the lane's
    session only if it leads one of its own.
    """
    by_session: dict[int, set[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                by_session.setdefault(os.getsid(int(entry)), set()).add(int(entry))
            except OSError:
                continue
    return by_session


def session_of(pid: int) -> set[int]:
    """All processes of one session."""
    return sessions().get(pid, set())


class Glance:
    """Ports and sessions as they are at one moment, read when first asked for: one look at a node may be about many
    lanes.
    """

    def __init__(self) -> None:
        self._listeners: dict[int, Listeners] = {}
        self._sessions: dict[int, set[int]] | None = None
        self._marks: dict[str, set[int]] | None = None
        self._guard = threading.Lock()

    def inodes(self, port: int) -> set[str]:
        """The sockets that listen on a port; empty when nobody does."""
        return set(self.sockets(port))

    def sockets(self, port: int) -> dict[str, Listener]:
        """As `inodes`, with whose they are."""
        with self._guard:
            return next((found[port] for family in TABLES if port in (found := self._of(family))), {})

    def listening(self) -> dict[int, list[Listener]]:
        """All ports that somebody listens on."""
        by_port: dict[int, list[Listener]] = {}
        with self._guard:
            for family in TABLES:
                for port, sockets in self._of(family).items():
                    by_port.setdefault(port, []).extend(sockets.values())
        return by_port

    def _of(self, family: int) -> Listeners:
        if family not in self._listeners:
            self._listeners[family] = listeners(family)
        return self._listeners[family]

    def marks(self, name: str) -> dict[str, set[int]]:
        """All processes of this network namespace that have the variable `name` in their environment and may be looked
        at, by its value.
        """
        with self._guard:
            if self._marks is None:
                by_session = self._by_session()
                # session 0 is that of the kernel's own threads, of which a big machine has a thousand
                self._marks = marks(name, {pid for leader, pids in by_session.items() if leader for pid in pids})
            return self._marks

    def bound(self, port: int) -> list[str]:
        """The addresses that a port is listened on."""
        return [listener.address for listener in self.sockets(port).values()]

    def is_loopback_alone(self, port: int) -> bool:
        """Whether all that listens on a port does so on 127.x or ::1: no other machine reaches it."""
        with self._guard:
            sockets = [socket for family in TABLES for socket in self._of(family).get(port, {}).values()]
        return bool(sockets) and all(socket.loopback for socket in sockets)

    def session_of(self, pid: int) -> set[int]:
        """See `session_of`."""
        with self._guard:
            return self._by_session().get(pid, set())

    def _by_session(self) -> dict[int, set[int]]:
        if self._sessions is None:
            self._sessions = sessions()
        return self._sessions


def marked(mark: str) -> set[int]:
    """All processes that were started with `mark` (NAME=value) in their environment, and may be looked at."""
    wanted = mark.encode()
    pids = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if wanted in _environment(int(entry)).split(b"\0"):
                    pids.add(int(entry))
            except OSError:
                continue
    return pids


def marks(name: str, pids: Iterable[int]) -> dict[str, set[int]]:
    """See `Glance.marks`."""
    wanted, here = f"{name}=".encode(), _network("self")
    by_value: dict[str, set[int]] = {}
    for pid in pids:
        try:
            environment = _environment(pid)
        except OSError:
            continue
        if wanted not in environment or _network(pid) != here:  # a container, or a node of a rack
            continue
        for word in environment.split(b"\0"):
            if word.startswith(wanted):
                by_value.setdefault(word.partition(b"=")[2].decode(errors="replace"), set()).add(pid)
    return by_value


def _environment(pid: int) -> bytes:
    """What a process was started with. Without a file object, which asks the kernel five things more of each."""
    fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def _network(pid: int | str) -> str:
    """The network namespace of a process, "" when that may not be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def owns_socket(pids: set[int], inodes: set[str]) -> int | None:
    """The first of the processes that holds one of the sockets; None when none does (or may not be looked at)."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                if os.readlink(f"{folder}/{descriptor}") in wanted:
                    return pid
            except OSError:
                continue
    return None


def holder(port: int, glance: Glance | None = None) -> Holder | None:
    """Who listens on a port, None when nobody does. Which lane that is in is for the caller to find out."""
    sockets = (glance or Glance()).sockets(port)
    if not sockets:
        return None
    pid = owns_socket({int(entry) for entry in os.listdir("/proc") if entry.isdigit()}, set(sockets))
    if pid is None:
        uid = min(sockets.values()).uid
        return {"pid": 0, "command": hidden(uid), "user": name_of(uid)}
    return {"pid": pid, "command": command(pid), "user": user(pid)}


def command(pid: int) -> str:
    """The first three words of a process's command line, enough to know it by. No more: it is another program's, may
    hold secrets, and what is told of it ends up in logs.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    return " ".join(words[:3])[:200] + (" ..." if len(words) > 3 else "")


def hidden(uid: int) -> str:
    """What is said of a process that may not be looked at."""
    name = name_of(uid)
    return f"a process of uid {uid}" + (f" ({name})" if name else "")


def user(pid: int) -> str:
    """The login name a process runs under, "" when it has none or is gone."""
    try:
        return name_of(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return ""


def name_of(uid: int) -> str:
    """The login name of a user, "" when this machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
