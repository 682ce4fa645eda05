"""A Debian for arm64, whose programs this machine's kernel starts under qemu: nodes of a rack can be of it.

The kernel is told by binfmt_misc, with what Debian's qemu-user-static says of itself. It is mounted in the namespace of
whoever needs it. From Linux 6.7 on it forgets all with the last mount, so nothing of a rack is left on the machine;
before that, the kernel goes on knowing it, as after an installation of that package on a machine with systemd.
"""

from __future__ import annotations

from pathlib import Path

from tests.rack.proc import RackError
from tests.rack.systems import System

MACHINE = "arm64"
HANDLER = "qemu-aarch64"
_PLACE = "sys/fs/binfmt_misc"
LINE = Path(f"/usr/lib/binfmt.d/{HANDLER}.conf")
# Arguments: where binfmt_misc is to be mounted, the file with the line for `register`. Two may tell the kernel at once.
# Only with "F" is the interpreter found from inside a root that does not have it.
_TELL = f"""\
mount -t binfmt_misc binfmt_misc "$1" || exit
[ -e "$1/{HANDLER}" ] || cat "$2" >"$1/register" || [ -e "$1/{HANDLER}" ] || exit
grep -q '^flags:.*F' "$1/{HANDLER}" || {{ echo "{HANDLER} is known to the kernel without F" >&2; exit 1; }}
"""

SYSTEM = System(
    name=MACHINE,
    command=MACHINE,
    releases=("bookworm",),
    # what a node needs: to be reached, an agent, an environment for an engine, the engine's library, an init
    packages=("openssh-server", "python3", "python3-venv", "libgomp1", "procps", "tini"),
    shown=("python3", "openssh-server", "libc6"),
    options=(f"--arch={MACHINE}",),
    prefix=("unshare", "--mount", "sh", "-c", f'{_TELL}shift 2; exec "$@"', "sh", f"/proc/{_PLACE}", str(LINE)),
    limit=1800,
)  # fmt: skip


def _no_qemu() -> str:
    if LINE.exists():
        return ""
    return f"its programs need qemu, and there is no {LINE}: apt-get install --no-install-recommends qemu-user-static"


def fetch() -> str:
    """Fetch the system if it is not here: minutes, since its packages are set up under qemu. Returns why it could not
    be, or "".
    """
    if not SYSTEM.stamp() and (reason := _no_qemu()):
        SYSTEM.not_to_be_had(reason)
        return reason
    return SYSTEM.fetch()


def lacking() -> str:
    """Why no node can be of that machine here, in one line; empty when one can."""
    reason = SYSTEM.lacking() or _no_qemu()
    return f"{MACHINE} is not tried: {reason}" if reason else ""


def root() -> Path:
    """The system whose /usr and /etc such a node shows; RackError when it cannot be had."""
    if problem := lacking():
        raise RackError(problem)
    return SYSTEM.root


def telling(proc: str) -> list[str]:
    """The command that makes the kernel start such programs for as long as its mount below `proc` is there."""
    return ["sh", "-c", _TELL, "sh", f"{proc}/{_PLACE}", str(LINE)]


def shown() -> str:
    """What it is made of, for people."""
    stamp = SYSTEM.stamp()
    if stamp is None or lacking():
        return lacking()
    return ", ".join(f"{name} {version}" for name, version in stamp.packages.items()) + f" (Debian {stamp.release})"
