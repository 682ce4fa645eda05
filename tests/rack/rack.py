"""A rack: brings nodes up side by side, finds racks that are up, takes one down, and clears what dead ones left."""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.rack import engines, foreign, keys, leftovers, needs, network
from tests.rack.nas import Nas
from tests.rack.network import Switch
from tests.rack.node import Node
from tests.rack.proc import Proc, RackError, only_child, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
FIRST_HOST = 11  # dgx1 is .11, so that a rack's addresses read like its names


def home() -> Path:
    """Where racks live: on a disk, and not below /usr or /etc, which nodes show."""
    return Path(os.environ.get("SPARKBUILD_RACK_DIR") or "/var/tmp/sparkbuild-rack")


@dataclass
class Rack:
    """A rack that is up. `with Rack.up(2) as rack: rack.nodes[0].ssh(["true"])`"""

    folder: Path
    switch: Switch
    keeper: Proc
    nodes: list[Node]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _nas: list[Nas] = field(default_factory=list, repr=False)

    @classmethod
    @contextmanager
    def up(
        cls,
        n: int,
        *,
        disk_mb: int | None = None,
        docker: bool = True,
        engine: str | None = None,
        arm64: Collection[str] = (),
    ) -> Iterator[Rack]:
        """A rack of `n` nodes for the length of a `with` block. It also ends when this process does, however it ends.

        `disk_mb` gives each node a disk of that size; without it, they share the machine's. `engine` is the docker
        that nodes have, a name of `engines.KINDS`; without it, the one that SPARKBUILD_RACK_ENGINE names. The nodes
        that `arm64` names are of that machine (see foreign.py), and have no docker.
        """
        rack = cls.start(n, disk_mb=disk_mb, docker=docker, engine=engine, arm64=arm64, tied=True)
        try:
            yield rack
        finally:
            rack.down()

    @classmethod
    def start(
        cls,
        n: int,
        *,
        disk_mb: int | None = None,
        docker: bool = True,
        engine: str | None = None,
        arm64: Collection[str] = (),
        tied: bool = False,
    ) -> Rack:
        """A rack that stays up until `down`; `tied`: or until this process ends."""
        if problem := needs.lacking():
            raise RackError(problem)
        kind = engines.chosen(engine) if docker else engines.DEFAULT
        if problem := engines.lacking(kind):
            raise RackError(problem)
        if arm64 and (problem := foreign.lacking()):
            raise RackError(problem)
        if unknown := sorted(set(arm64) - {f"dgx{i}" for i in range(1, n + 1)}):
            raise RackError(f"no node {', '.join(unknown)}: a rack of {n} has dgx1 to dgx{n}")
        rack = cls._reserve(n, disk_mb=disk_mb, docker=docker, engine=kind, arm64=arm64, tied=tied)
        try:
            if n:
                with ThreadPoolExecutor(n) as pool:
                    list(pool.map(Node.boot, rack.nodes))
        except BaseException:
            rack.down()
            raise
        return rack

    @classmethod
    def _reserve(
        cls, n: int, *, disk_mb: int | None, docker: bool, engine: str, arm64: Collection[str], tied: bool
    ) -> Rack:
        """Find a number and a network that no other has, and start the keeper, under one lock for all racks."""
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(home() / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep()
            number = next(one for one in range(1, 1000) if not _taken(one))
            net = network.choose(network.present())
            folder = home() / str(number)
            folder.mkdir(mode=0o700)
            # The keeper inherits the lock and holds it as long as it lives: by that, a dead rack's folder is known.
            with open(folder / "lock", "w", encoding="utf-8") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                process = _start_keeper(folder, held.fileno(), tied)
            try:
                keeper = _keeper(process, folder)
                switch = Switch(keeper.pid, f"sprack{number}", net)
                switch.install()
            except BaseException:
                process.kill()
                process.wait()
                leftovers.clear(str(folder))
                raise
        names = [(f"dgx{i}", str(net[FIRST_HOST - 1 + i])) for i in range(1, n + 1)]
        nodes = [
            Node(folder, switch, name, address, disk_mb, docker and name not in arm64, engine, name in arm64)
            for name, address in names
        ]
        rack = cls(folder, switch, keeper, nodes, process)
        rack._write()
        return rack

    def _write(self) -> None:
        """The files that clients, nodes and `attach` read."""
        key = self.folder / "id_ed25519"
        keys.make(key, "rack")
        hosts = []
        for node in self.nodes:
            node.folder.mkdir()
            keys.make(node.folder / "host_key", node.name)
            hosts.append((node.name, node.address, node.host_key))
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for name, address, _ in hosts)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        known = self.folder / "known_hosts"
        known.write_text(keys.known_hosts(hosts), encoding="utf-8")
        self.ssh_config.write_text(keys.client_config(str(key), str(known), hosts), encoding="utf-8")
        state = {
            "network": str(self.switch.network),
            "link": self.switch.link,
            "keeper": [self.keeper.pid, self.keeper.started],
            "nodes": [
                [node.name, node.address, node.disk_mb, node.has_docker, node.engine, node.is_arm64]
                for node in self.nodes
            ],
        }
        (self.folder / "rack.json").write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def attach(cls, folder: Path) -> Rack:
        """A rack that another process brought up."""
        try:
            state = json.loads((folder / "rack.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RackError(f"no rack in {folder}") from None
        keeper = Proc(*state["keeper"])
        switch = Switch(keeper.pid, state["link"], ipaddress.IPv4Network(state["network"]))
        nodes = [Node(folder, switch, *fields) for fields in state["nodes"]]
        return cls(folder, switch, keeper, nodes)

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: knows the nodes by name, the key, and the host keys they had when the rack came up."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise RackError(f"no node {name}: this rack has {', '.join(node.name for node in self.nodes) or 'none'}")

    def nas(self, source: str | Path, direct_io: bool = False, **how: float) -> Nas:
        """A NAS that holds the files of the folder `source`; see Nas for `how`."""
        self._nas.append(Nas.make(self.folder, self.keeper.pid, Path(source), direct_io=direct_io, **how))
        return self._nas[-1]

    def all_nas(self) -> list[Nas]:
        """Those of every process that attached."""
        return [Nas(folder, self.keeper.pid) for folder in sorted(self.folder.glob("nas/*"))]

    def down(self) -> None:
        """End everything and remove it; fine when it is down already.

        Under the lock of all racks: as soon as the keeper has removed the folder, its number is free, and what is
        cleared after that would be another rack's.
        """
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder.parent / ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._down()

    def _down(self) -> None:
        self.switch.remove()
        process = self._process
        if process and process.stdin:
            process.stdin.close()
        if process is None or not process.stdin:
            self.keeper.signal(signal.SIGTERM)
        # it removes what dockers have written: gigabytes in many files, on a disk that others use
        wait_for("the rack's keeper ends", lambda: not self.keeper.alive(), 120)
        if process:
            process.wait(timeout=15)
        for node in self.nodes:
            if node._starter:
                node._starter.wait(timeout=15)
        for nas in self._nas:
            nas.reap()
        leftovers.clear(str(self.folder))  # what the keeper could not
        if self.folder.exists() or leftovers.loops(str(self.folder)):
            raise RackError(f"not all of {self.folder} could be removed")


def _start_keeper(folder: Path, lock: int, tied: bool) -> subprocess.Popen[bytes]:
    fresh = ["unshare", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--"]
    keeper = [sys.executable, "-S", "-m", "tests.rack.keeper", str(folder), "tied" if tied else "free"]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # see keeper.main: the keeper inherits it
    try:
        with open(folder / "keeper.log", "wb") as log:
            return subprocess.Popen(
                [*fresh, *keeper],
                stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=REPOSITORY, pass_fds=[lock], start_new_session=True,
            )  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _keeper(process: subprocess.Popen[bytes], folder: Path) -> Proc:
    # Popen has started `unshare`; the keeper is its child.
    wait_for("the rack's keeper starts", lambda: process.poll() is not None or only_child(process.pid))
    pid = only_child(process.pid)
    if pid is None:
        raise RackError(f"the rack's keeper did not start:\n{(folder / 'keeper.log').read_text()}")
    return Proc.of(pid)


def _taken(number: int) -> bool:
    return (home() / str(number)).exists() or os.path.exists(f"/sys/class/net/sprack{number}")


def running() -> list[Rack]:
    """Racks that are up, oldest number first."""
    return [Rack.attach(folder) for folder in _folders() if not _is_dead(folder) and (folder / "rack.json").exists()]


def sweep() -> list[Path]:
    """Clear what dead racks left; returns their folders. The caller holds the lock of all racks."""
    dead = [folder for folder in _folders() if _is_dead(folder)]
    for folder in dead:
        leftovers.clear(str(folder))
    return dead


def _folders() -> list[Path]:
    return sorted((one for one in home().glob("[0-9]*") if one.name.isdigit()), key=lambda one: int(one.name))


def _is_dead(folder: Path) -> bool:
    try:
        with open(folder / "lock", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
