"""One node of a rack: what it is called, what runs on it, and what can be done to it."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.rack import bootfile, disk, engines, keys, leftovers, pythons
from tests.rack.engine import Engine
from tests.rack.network import Switch
from tests.rack.proc import Proc, RackError, Result, call, entering, only_child, wait_for

FILLER = "/var/filler"


@dataclass
class Node:
    """A node. All that must outlive this object is in its folder, so that another process can go on with it."""

    rack_folder: Path
    switch: Switch
    name: str
    address: str
    disk_mb: int | None
    has_docker: bool
    engine: str = engines.DEFAULT
    is_arm64: bool = False
    port: int = 22
    user: str = "root"
    _starter: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def rack(self) -> str:
        return self.rack_folder.name

    @property
    def folder(self) -> Path:
        """Its disk and keys on the machine."""
        return self.rack_folder / self.name

    @property
    def key_file(self) -> Path:
        """The private key that opens it."""
        return self.rack_folder / "id_ed25519"

    @property
    def host_key(self) -> str:
        """Its public host key now: `ssh-ed25519 AAAA...`."""
        return keys.public(self.folder / "host_key")

    @property
    def host_key_fingerprint(self) -> str:
        return keys.fingerprint(self.host_key)

    @property
    def docker(self) -> Engine:
        return Engine(self)

    # -- power ---------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its first process, as the machine numbers it; RackError when the node is off."""
        init = self._init()
        if init is None:
            raise RackError(f"{self.name} is off")
        return init.pid

    def is_on(self) -> bool:
        return self._init() is not None

    def boot(self) -> None:
        """Switch it on with the disk it has, and wait until sshd and dockerd answer. Fine when it is on already.

        Its cable is in, and its network has no limit, whatever was before.
        """
        if self.is_on():
            return
        try:
            self._boot()
        except BaseException:
            self.kill()
            raise

    def _boot(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "disk").mkdir(exist_ok=True)
        if not (self.folder / "host_key").exists():
            keys.make(self.folder / "host_key", self.name)
        image = self.folder / "disk.img"
        if self.disk_mb and not image.exists():
            disk.make(image, self.disk_mb)
        boot_file = bootfile.write(self)
        fresh = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL", "--"]
        init = [sys.executable, "-I", "-S", str(Path(__file__).with_name("machine.py")), str(boot_file)]
        log = self.folder / "init.log"
        with open(log, "wb") as file:
            self._starter = subprocess.Popen(
                [*entering(self.switch.keeper, "pid"), *fresh, *init],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        pid = self._wait_for_init(self._starter, log)
        state = {"pid": pid, "started": Proc.of(pid).started}
        (self.folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        try:
            self.switch.connect(self.name, pid, self.address)
            wait_for(f"{self.name} is set up (see {log})", lambda: _runs_tini(pid) or not self.is_on())
        finally:
            if not self.is_on():  # and that is why there was nothing to put a cable into
                raise RackError(f"{self.name} did not boot:\n{log.read_text(errors='replace')}")
        wait_for(f"sshd of {self.name} answers", self._banner)
        if self.has_docker:
            self.docker.wait()

    def kill(self) -> None:
        """Power failure: every process of the node ends at once, its disk stays."""
        init = self._init()
        if init:
            init.signal(signal.SIGKILL)
            wait_for(f"{self.name} ends", lambda: not init.alive())
        if self._starter:
            self._starter.wait(timeout=15)
            self._starter = None
        self.switch.disconnect(self.name)
        # The next boot must not mount the disk's file while this one's loop device still writes to it.
        wait_for(f"the disk of {self.name} is free", lambda: not leftovers.loops(str(self.folder)))

    def _init(self) -> Proc | None:
        try:
            state = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        init = Proc(state["pid"], state["started"])
        return init if init.alive() else None

    def _wait_for_init(self, starter: subprocess.Popen[bytes], log: Path) -> int:
        # nsenter -> unshare -> init
        def found() -> int | None:
            if starter.poll() is not None:
                raise RackError(f"{self.name} did not start:\n{log.read_text(errors='replace')}")
            middle = only_child(starter.pid)
            return only_child(middle) if middle else None

        wait_for(f"{self.name} starts", found)
        pid = found()
        if pid is None:
            raise RackError(f"{self.name} ended while it started:\n{log.read_text(errors='replace')}")
        return pid

    def _banner(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    # -- programs ------------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        text: str | bytes = "",
        timeout: float = 120,
        check: bool = False,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run a program on the node as root, without ssh: also when its network is cut."""
        shown = f"on {self.name}: {shlex.join(argv)}"
        return call([*self.inside(env), *argv], text=text, timeout=timeout, check=check, shown=shown)

    def inside(self, env: dict[str, str] | None = None) -> list[str]:
        """The command that runs another on the node, in root's home with a fresh environment."""
        given = [f"{name}={value}" for name, value in {**bootfile.ENV, **(env or {})}.items()]
        # With nsenter a program on the node would outlive it: --pdeathsig ends it too, for example at a time limit.
        die_with_us = ["setpriv", "--pdeathsig", "KILL"]
        return [*entering(self.pid, "mount", "net", "uts", "ipc", "pid"), *die_with_us,
                "env", "-i", "-C", "/root", *given]  # fmt: skip

    def ssh(
        self,
        argv: Sequence[str],
        *,
        text: str | bytes = "",
        timeout: float = 120,
        user: str | None = None,
        options: Sequence[str] = (),
    ) -> Result:
        """Run a program by the real ssh client of the machine, which knows this rack's first host keys only."""
        command = [*self.ssh_command(user, options), shlex.join(argv)]
        shown = f"ssh {self.name} {shlex.join(argv)}"
        return call(command, text=text, timeout=timeout, check=False, shown=shown)

    def ssh_command(self, user: str | None = None, options: Sequence[str] = ()) -> list[str]:
        given = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", str(self.rack_folder / "ssh_config"), *given, f"{user or self.user}@{self.name}"]

    def python(self, version: str) -> str | None:
        """The path on the node of a Python of that version ("3.12"); None when it has none."""
        return None if self.is_arm64 else pythons.find(version)

    def path(self, path: str) -> Path:
        """A file of the node as a path on the machine. Absolute symlinks on the way lead to the machine's files."""
        return Path(f"/proc/{self.pid}/root{path}")

    def add_user(self, name: str, *groups: str) -> None:
        """A user who may log in with the rack's key."""
        listed = ["-G", ",".join(groups)] if groups else []
        # "*" is no password; the default "!" would be a locked account, which sshd refuses even with a key.
        self.run(["useradd", "-m", "-s", "/bin/bash", "-p", "*", *listed, name], check=True)
        script = 'h=$(getent passwd "$1" | cut -d: -f6); install -d -m 700 -o "$1" "$h/.ssh"; '
        script += 'install -m 600 -o "$1" /root/.ssh/authorized_keys "$h/.ssh/authorized_keys"'
        self.run(["sh", "-c", script, "sh", name], check=True)

    # -- faults --------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Pull its network cable out: packets are lost, nobody is told."""
        self.switch.cut(self.name)

    def heal(self) -> None:
        self.switch.heal(self.name)

    def rate(self, mbit: float | None) -> None:
        """Limit its network, in each direction; None lifts the limit."""
        self.switch.rate(self.name, self.pid, mbit)

    def dockerd_stop(self, number: int = signal.SIGTERM) -> None:
        self.docker.stop(number)

    def dockerd_start(self) -> None:
        self.docker.start()

    def fill_disk(self, leave_bytes: int = 0) -> None:
        """Leave about that many bytes of its disk free (within a few blocks of 4 KiB)."""
        if not self.disk_mb:
            raise RackError(f"{self.name} has no disk of its own to fill: bring the rack up with disk_mb=...")
        self.free_disk()
        self.run(["sync", "-f", str(PurePosixPath(FILLER).parent)], check=True)  # of this disk alone
        disk.fill(self.path(FILLER), leave_bytes)

    def free_disk(self) -> None:
        """Undo fill_disk."""
        self.path(FILLER).unlink(missing_ok=True)

    def rotate_host_key(self) -> None:
        """A new host key, as after a reinstallation. The rack's known_hosts keeps the old one."""
        keys.make(self.folder / "host_key", self.name)
        place = "/etc/ssh/ssh_host_ed25519_key"
        for path, text in ((place, (self.folder / "host_key").read_text()), (f"{place}.pub", f"{self.host_key}\n")):
            self.path(path).write_text(text)
        self.run(["sh", "-c", 'kill -HUP "$(cat /run/sshd.pid)"'], check=True)
        wait_for(f"sshd of {self.name} has its new key", lambda: self.host_key in self._offered())

    def _offered(self) -> str:
        return self.run(["ssh-keyscan", "-T", "2", "-t", "ed25519", "127.0.0.1"]).out


def _runs_tini(pid: int) -> bool:
    # not by its exe: under qemu that is qemu
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "tini\n"
    except OSError:
        return False
