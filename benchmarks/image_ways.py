"""The usual ways to bring an image from one node of a rack to another, to measure ours beside them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.rack.made import Made
from tests.rack.node import Node

# A way brings the image from the holder to the node.
Way = Callable[[Node, Node, Made], None]

_OPTIONS = "-i /root/.ssh/rack -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
_PORT = 5000  # of the registry, on the loopback of both nodes
_TAR = "/root/image.tar"
_CONFIG = f"""\
version: 0.1
log: {{accesslog: {{disabled: true}}, level: error}}
storage: {{filesystem: {{rootdirectory: /srv/registry}}}}
http: {{addr: "127.0.0.1:{_PORT}"}}
"""


def allow(holder: Node) -> None:
    """The holder may log in to the others, which our way does not need."""
    place = holder.path("/root/.ssh/rack")
    place.write_bytes(holder.key_file.read_bytes())
    place.chmod(0o600)


def save_load(holder: Node, node: Node, image: Made) -> None:
    """`docker save | ssh node docker load`."""
    _run(holder, f"docker save {image.reference} | ssh {_OPTIONS} root@{node.address} docker load -q")


def rsync(holder: Node, node: Node, image: Made) -> None:
    """`docker save` into a file, `rsync` of that to the one that an earlier call left on the node, `docker load`."""
    _run(holder, f"docker save -o {_TAR} {image.reference}")
    _run(
        holder, f"rsync --inplace --no-whole-file -e {shlex.quote('ssh ' + _OPTIONS)} {_TAR} root@{node.address}:{_TAR}"
    )
    _run(node, f"docker load -q -i {_TAR}")


@contextmanager
def ways(holder: Node, nodes: Sequence[Node]) -> Iterator[dict[str, Way]]:
    """Every way that this machine has the programs for, by name; says which it has not."""
    allow(holder)
    found: dict[str, Way] = {"save | ssh | load": save_load}
    if shutil.which("rsync"):
        found["save, rsync, load"] = rsync
    else:
        print("no rsync here: it is not measured (apt-get install rsync)")
    if not shutil.which("docker-registry"):
        print("no docker-registry here: it is not measured (apt-get install docker-registry)")
        yield found
        return
    with _registry(holder, nodes):
        yield {**found, "push, pull": _push_pull}


@contextmanager
def _registry(holder: Node, nodes: Sequence[Node]) -> Iterator[None]:
    """Debian's registry on the holder, and its port brought to the loopback of the nodes by ssh."""
    holder.path("/root/registry.yml").write_text(_CONFIG)
    log = holder.path("/root/registry.log")
    with log.open("wb") as said:  # every blob that it has not got is an error to it
        argv = [*holder.inside(), "docker-registry", "serve", "/root/registry.yml"]
        started = [subprocess.Popen(argv, stdout=said, stderr=said)]
    for node in nodes:
        tunnel = f"ssh {_OPTIONS} -N -R {_PORT}:127.0.0.1:{_PORT} root@{node.address}"
        started.append(subprocess.Popen([*holder.inside(), *shlex.split(tunnel)]))
    try:
        for one in (holder, *nodes):
            _wait(one, log)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _wait(node: Node, log: Path) -> None:
    for _ in range(100):
        if not node.run(["bash", "-c", f": < /dev/tcp/127.0.0.1/{_PORT}"]).code:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the registry does not answer on {node.name}: {log.read_text(errors='replace')}")


def _push_pull(holder: Node, node: Node, image: Made) -> None:
    there = f"127.0.0.1:{_PORT}/{image.reference}"
    _run(holder, f"docker tag {image.reference} {there}; docker push -q {there}; docker rmi {there}")
    _run(node, f"docker pull -q {there}; docker tag {there} {image.reference}; docker rmi {there}")


def _run(node: Node, command: str) -> None:
    node.run(["bash", "-c", f"set -eo pipefail; {command}"], timeout=900, check=True)
