"""The first process of a rack: holds its pid namespace and its switch, and clears up when it is told to or left alone.

    python -m tests.rack.keeper FOLDER tied|free

`tied`: ends when its input does, so also when the process that brought the rack up is killed. `free`: on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from tests.rack import leftovers


def main(folder: str, tie: str) -> int:
    # As pid 1 of its namespace it inherits orphans (ignored: the kernel buries them), and gets no signal that it has
    # no handler for, but one that is blocked: it was started with SIGTERM blocked, since one that came before this line
    # would be lost, and one between a handler's last instruction and a wait would be waited for without end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.chdir("/")
    if tie == "tied":
        threading.Thread(target=_end_with_input, daemon=True).start()
    signal.sigwait({signal.SIGTERM})
    _end_others()
    # The kernel would remove the machine's end too, but only a while after the namespace of this one is gone.
    subprocess.run(["ip", "link", "delete", "uplink"], check=False)
    leftovers.clear(folder)
    return 0


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end_others() -> None:
    # -1 is everyone in this pid namespace and those below it, but not pid 1: never a process of the machine.
    if os.getpid() != 1:
        raise SystemExit("the keeper is not pid 1: it was not started by a rack")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
