"""A slow NAS: a folder of the machine, mounted read-only on nodes or on the machine through FUSE.

What it can do to its readers: latency per call, one bandwidth for all of them, attribute caches that lie, read faults.
What it tells: which bytes of which file were read by whom. The files are real; a test changes them at their source.

The caches are the kernel's own, per mount, and follow the same rules as those of an NFS client: for `attr_s` seconds
`stat` and a file that is held open show old sizes and times, for `negative_s` a new file is missing, for `entry_s` a
name is not looked up again, while `open` and `listdir` see what is there. (Unlike NFS, a symlink's text is never old.)
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.rack import mounts
from tests.rack.node import Node
from tests.rack.proc import Proc, RackError, call, entering, only_child, wait_for

SERVER = Path(__file__).with_name("nas_server.py")
HOST = "host"
Kind = Literal["EIO", "ESTALE", "short", "flip"]


def server_python() -> str:
    """A Python that has mfusepy: the one named by SPARKBUILD_RACK_PYTHON, or ours. RackError when that has none."""
    if named := os.environ.get("SPARKBUILD_RACK_PYTHON"):
        return named
    if importlib.util.find_spec("mfusepy"):
        return sys.executable
    raise RackError(
        f"a NAS needs mfusepy: {sys.executable} -m pip install --require-hashes -r requirements-rack.lock, or name a "
        "Python that has it in SPARKBUILD_RACK_PYTHON"
    )


@dataclass(frozen=True)
class Read:
    """One read that the NAS answered. The kernel asks for more than programs do: whole pages, and ahead."""

    node: str
    path: str
    offset: int
    size: int


@dataclass
class Nas:
    """A NAS. All of its state is in files of its folder, where its servers find it."""

    folder: Path
    keeper: int
    _starters: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    @classmethod
    def make(
        cls,
        rack: Path,
        keeper: int,
        source: Path,
        *,
        latency_ms: float = 0,
        mb_per_s: float = 0,
        attr_s: float = 0,
        entry_s: float = 0,
        negative_s: float = 0,
        direct_io: bool = False,
    ) -> Nas:
        """A NAS in the folder of a rack. `mb_per_s` 0: as fast as it goes.

        `direct_io`: no page cache and no reading ahead, so that the counters show what programs asked for; such files
        cannot be mapped shared.
        """
        if not source.is_dir():
            raise RackError(f"a NAS shows a folder, and there is none at {source}")
        number = next(one for one in range(1, 1000) if not (rack / "nas" / str(one)).exists())
        folder = rack / "nas" / str(number)
        folder.mkdir(parents=True)
        (folder / "reads.log").touch()
        timeouts = {"attr_timeout": attr_s, "entry_timeout": entry_s, "negative_timeout": negative_s}
        fixed = {"source": str(source.resolve()), "timeouts": timeouts, "direct_io": direct_io}
        (folder / "nas.json").write_text(json.dumps(fixed), encoding="utf-8")
        nas = cls(folder, keeper)
        nas._put({"latency_ms": latency_ms, "mb_per_s": mb_per_s, "faults": []})
        return nas

    def mount(self, node: Node | None, path: str | Path) -> None:
        """Mount it on a node, or with None on the machine. The folder is made when it is missing."""
        fixed = json.loads((self.folder / "nas.json").read_text(encoding="utf-8"))
        name, inside = (node.name, node.pid) if node else (HOST, self.keeper)
        at = str(path)
        if node:
            node.run(["mkdir", "-p", at], check=True)
        else:
            Path(at).mkdir(parents=True, exist_ok=True)
            at = str(Path(at).resolve())
        how = {
            **fixed,
            "control": str(self.folder),
            "node": name,
            "namespace": f"/proc/{inside}/ns/mnt" if node else "",
            "at": at,
        }
        log = self.folder / f"server-{name}.log"
        # In the pid namespace of the node (or of the rack), so that it ends with it.
        argv = [*entering(inside, "pid"), server_python(), "-I", str(SERVER), json.dumps(how)]
        with open(log, "ab") as file:
            starter = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)

        def mounted() -> bool:
            if starter.poll() is not None:
                raise RackError(f"no NAS at {at} of {name}:\n{log.read_text(errors='replace')}")
            seen = mounts.seen_by(inside if node else "self")
            return any(mount.at == at and mount.source == str(self.folder) for mount in seen)

        wait_for(f"the NAS is mounted at {at} of {name}", mounted)
        server = Proc.of(only_child(starter.pid) or starter.pid)
        record = {"node": name, "at": at, "pid": server.pid, "started": server.started}
        (self.folder / f"mount-{server.pid}.json").write_text(json.dumps(record), encoding="utf-8")
        self._starters.append(starter)

    def unmount(self, node: Node | None, path: str | Path) -> None:
        """Take it away; open files on it keep working until they are closed."""
        if not self.is_mounted(node, path):
            raise RackError(f"this NAS is not mounted at {path} of {node.name if node else HOST}")
        argv = ["umount", "--lazy", str(path)]
        node.run(argv, check=True) if node else call(argv)

    def is_mounted(self, node: Node | None, path: str | Path) -> bool:
        name, at = (node.name, str(path)) if node else (HOST, str(Path(path).resolve()))
        return any(record["node"] == name and record["at"] == at for record in self._records())

    def crash(self, node: Node | None) -> None:
        """Kill the servers of a node's mounts: every access then fails with ENOTCONN."""
        for record in self._records():
            if record["node"] == (node.name if node else HOST):
                Proc(record["pid"], record["started"]).signal(signal.SIGKILL)

    def reap(self) -> None:
        """Wait for the ends of servers; their node or their rack is down."""
        for starter in self._starters:
            starter.wait(timeout=15)

    def slow(self, *, latency_ms: float | None = None, mb_per_s: float | None = None) -> None:
        """Change how slow it is, for all mounts, from the next call on."""
        settings = self._settings()
        changes = {"latency_ms": latency_ms, "mb_per_s": mb_per_s}
        self._put({**settings, **{name: value for name, value in changes.items() if value is not None}})

    def fail(self, path: str, kind: Kind, at: int, times: int | None = 1) -> None:
        """Let a read of byte `at` of a file go wrong: `path` is as the NAS has it, "/models/x".

        EIO, ESTALE: the read fails. short: the file seems to end there. flip: the byte's lowest bit is wrong.
        `times`: how many opened files meet it (with direct_io: how many reads); None: all.
        """
        settings = self._settings()
        number = max([one["id"] for one in settings["faults"]], default=0) + 1
        for one in range(times or 0):
            (self.folder / f"fault-{number}-{one}").touch()
        fault = {"id": number, "path": path, "kind": kind, "at": at, "times": times}
        self._put({**settings, "faults": [*settings["faults"], fault]})

    def mend(self) -> None:
        """No more faults."""
        self._put({**self._settings(), "faults": []})

    def reads(self) -> list[Read]:
        """All reads since the last `forget`, in the order of their answers."""
        lines = (self.folder / "reads.log").read_text(encoding="utf-8").splitlines()
        return [Read(*json.loads(line)) for line in lines]

    def bytes_read(self, path: str | None = None, node: str | None = None) -> int:
        """How much was read, of one file or all, by one node ("host": the machine) or all."""
        return sum(one.size for one in self.reads() if path in {None, one.path} and node in {None, one.node})

    def forget(self) -> None:
        """Count from here."""
        os.truncate(self.folder / "reads.log", 0)

    def _records(self) -> list[dict[str, Any]]:
        """Mounts whose servers run."""
        found = [json.loads(place.read_text(encoding="utf-8")) for place in self.folder.glob("mount-*.json")]
        return [record for record in found if Proc(record["pid"], record["started"]).alive()]

    def _settings(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "settings.json").read_text(encoding="utf-8")))

    def _put(self, settings: dict[str, Any]) -> None:
        part = self.folder / "settings.part"
        part.write_text(json.dumps(settings), encoding="utf-8")
        part.replace(self.folder / "settings.json")
