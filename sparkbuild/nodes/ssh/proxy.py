"""ProxyCommand: a program of the operator's own whose stdin and stdout are the connection, run by the shell as OpenSSH
does. The command is the operator's; nothing of ours is joined to it but the tokens it asks for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections import deque

from sparkbuild.core import child

_MOMENT = 0.5  # seconds: what it says, and its end, come a little after it hung up
_GRACE = 2.0  # seconds to end by itself, once nobody listens to it


class ProxySocket(socket.socket):
    """The connection. Closing it ends the program."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        shell = os.environ.get("SHELL") or "/bin/sh"
        self._said: deque[bytes] = deque(maxlen=5)
        try:
            # `exec`: the program itself is the child, no shell stays around it
            self._program = child.spawn(
                [shell, "-c", f"exec {command}"],
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE,
                tethered=False, final=True, lasting=True,
            )  # fmt: skip
        except BaseException:
            super().close()
            raise
        finally:
            theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._closing = threading.Lock()
        self._ended = False

    def said(self) -> str:
        """The end of what the program wrote on stderr, and how it ended if it did."""
        self._listener.join(timeout=_MOMENT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(timeout=_MOMENT)
        code = self._program.poll()
        lines = [line.decode(errors="replace")[:500].rstrip() for line in self._said]
        return "\n".join([*lines, *([f"exit code {code}"] if code else [])])

    def close(self) -> None:
        """Hang up; the program is ended in the background if it does not end by that."""
        super().close()
        with self._closing:
            if self._ended:
                return
            self._ended = True
        threading.Thread(target=child.end, args=(self._program, _GRACE), daemon=True).start()

    def _listen(self) -> None:
        stream = self._program.stderr
        if stream is None:
            return
        with stream:
            while line := stream.readline(1 << 14):
                self._said.append(line)
