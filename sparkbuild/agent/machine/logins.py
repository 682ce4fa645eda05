"""Whether what we start here outlives our login: logind ends the processes of a session with it, where it is told to.

logind.conf(5): KillUserProcesses, KillExcludeUsers. Lingering alone does not help: it keeps the user's own services,
and what a login starts is in the scope of its session.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress

from sparkbuild.agent.machine.system import names, text

_BUS = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_PATIENCE = 2.0  # seconds
_SCOPE = re.compile(r"/session-[^/]+\.scope")


def ends_with_login() -> str:
    """Why it does not, with what helps; "" when it does, or nobody can say."""
    if not _SCOPE.search(text("/proc/self/cgroup")):
        return ""
    user, _ = names()
    get = ["busctl", "get-property", *_BUS]
    kills, excluded = (output_of([*get, name], _PATIENCE) for name in ("KillUserProcesses", "KillExcludeUsers"))
    return told(kills, excluded, user)


def told(kills: str, excluded: str, user: str) -> str:
    """By what busctl says of both settings: `b true`, `as 1 "root"`."""
    if kills.split() != ["b", "true"] or f'"{user}"' in excluded:
        return ""
    return (
        f"its logind ends all processes of {user} with the login (KillUserProcesses=yes), and the lane with them:"
        f" KillExcludeUsers=root {user} in /etc/systemd/logind.conf, then systemctl restart systemd-logind"
    )


def output_of(argv: list[str], patience: float) -> str:
    """What a program of the system says; "" when it is not there, fails, or takes more than that many seconds."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - argv is a list, no shell
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience, check=True
        ).stdout
    return ""
