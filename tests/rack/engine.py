"""The docker engine of one node: its daemon, its client, and images for it."""

from __future__ import annotations

import http.client
import signal
import socket
from contextlib import closing
from typing import TYPE_CHECKING

from tests.rack.image import Image
from tests.rack.leftovers import CGROUPS
from tests.rack.proc import RackError, Result, wait_for

if TYPE_CHECKING:
    from tests.rack.node import Node

SOCKET = "/run/docker.sock"
LOG = "/var/log/dockerd.log"


def daemon(rack: str, node: str) -> list[str]:
    """The command that starts dockerd, detached, as the node's init and `start` do."""
    options = {
        "--host": f"unix://{SOCKET}",
        "--data-root": "/var/lib/docker",
        "--exec-root": "/run/docker",
        "--pidfile": "/run/docker.pid",
        "--exec-opt": "native.cgroupdriver=cgroupfs",  # there is no systemd to ask for cgroups
        "--cgroup-parent": f"/{CGROUPS}/{rack}/{node}",
    }
    given = [word for pair in options.items() for word in pair]
    return ["setsid", "--fork", "sh", "-c", f'exec "$@" >>{LOG} 2>&1', "sh", "dockerd", *given]


class Engine:
    """dockerd of a node. Its own store, bridge and firewall: nothing of it is visible outside the node."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __call__(self, *argv: str, timeout: float = 120, check: bool = True) -> Result:
        """Run the node's docker client, without ssh."""
        return self.node.run(["docker", *argv], timeout=timeout, check=check)

    @property
    def is_containerd(self) -> bool:
        """Whether its images are in containerd's store, and not in overlay2's."""
        return self.node.engine.endswith("containerd")

    @property
    def socket(self) -> str:
        """The daemon's socket as a path on the machine; another after each boot."""
        return f"/proc/{self.node.pid}/root{SOCKET}"

    def load(self, image: Image) -> str:
        """Make the image and load it; returns its id, `sha256:...`."""
        self.node.run(["docker", "load", "--quiet"], text=image.tar(), timeout=120, check=True)
        return self("image", "inspect", "--format", "{{.Id}}", image.tag).out.strip()

    def ready(self) -> bool:
        """Whether the daemon answers."""
        if not self.node.is_on():
            return False
        with closing(_OverSocket(self.socket)) as connection:
            try:
                connection.request("GET", "/_ping")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def wait(self, timeout: float = 30) -> None:
        """Until the daemon answers."""
        try:
            wait_for(f"dockerd of {self.node.name} answers", self.ready, timeout)
        except RackError as error:
            tail = self.node.run(["tail", "-n", "15", LOG], check=False).out if self.node.is_on() else "node is off"
            raise RackError(f"{error}\n{tail}") from None

    def start(self) -> None:
        """Start the daemon when it does not run, and wait until it answers."""
        if not self._pid():
            self.node.run(daemon(self.node.rack, self.node.name), check=True)
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the daemon: SIGTERM ends its containers with it, SIGKILL is a crash and leaves them."""
        pid = self._pid()
        if pid:
            self.node.run(["kill", f"-{int(number)}", pid], check=True)
            wait_for(f"dockerd of {self.node.name} ends", lambda: not self._pid(), 30)

    def _pid(self) -> str:
        # The pid as the node numbers it; the file stays after a crash.
        check = 'pid=$(cat /run/docker.pid 2>/dev/null) && [ "$(cat /proc/$pid/comm)" = dockerd ] && echo $pid'
        return self.node.run(["sh", "-c", check]).out.strip()


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self._path)
