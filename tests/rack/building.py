"""A workspace whose images are built on a node of a rack: a base of one locked package, and an image on top of it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.images.packages import ar, tar
from tests.rack.node import Node
from tests.workspace.helpers import FORMAT, put
from tests.workspace_tool import DODO, Tool

STORE = "/srv/sparkbuild"
DOCKERFILE = "FROM {{ base }}\nCOPY {{ files }}/hello.sh /hello.sh\nRUN echo {{ args.VERSION }} >/version\n"
GATE = '[[gates]]\nid = "hello"\ncommand = ["/hello.sh"]\nexpect = "hello"\n'


def busybox_deb() -> bytes:
    """A Debian package of this machine's static busybox; the same bytes each time."""
    path = shutil.which("busybox")
    assert path is not None, "apt-get install busybox-static"
    content = Path(path).read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        info = tarfile.TarInfo("./bin/busybox")
        info.size, info.mode = len(content), 0o755
        file.addfile(info, io.BytesIO(content))
    control = tar([("./control", b"Package: busybox-static\nVersion: 1\nArchitecture: amd64\n")])
    return ar([("debian-binary", b"2.0\n"), ("control.tar", control), ("data.tar", out.getvalue())])


class Yard(Tool):
    """doit in a workspace with the images `base` (assembled) and `tiny` (built on `node`)."""

    def __init__(self, root: Path, node: Node, env: Mapping[str, str] | None = None) -> None:
        super().__init__(root, {"HOME": str(root / "home"), **(env or {})})
        self.node = node
        put(root, "home/.ssh/config", "Host *\n    ConnectTimeout 2\n")
        put(root, "dodo.py", DODO)
        fields = {"address": node.address, "user": "root", "key": str(node.key_file), "host_key": node.host_key}
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        text = f'[nodes.{node.name}]\nconnection = "ssh"\nstore = "{STORE}"\noffline = true\n'
        put(root, "config.toml", "\n".join([text, *lines, ""]))
        package = busybox_deb()
        (root / "debs").mkdir(exist_ok=True)
        (root / "debs/busybox-static_1_amd64.deb").write_bytes(package)
        self.pins = {
            "busybox.artifact.url": "file:debs/busybox-static_1_amd64.deb",
            "busybox.artifact.sha256": hashlib.sha256(package).hexdigest(),
        }
        self.lock()
        put(root, "images/base/image.toml", 'kind = "docker"\nlock = "pins"\ndebs = ["busybox"]\n')
        put(root, "images/tiny/hello.sh", "#!/bin/sh\necho hello from $(cat /version)\n")
        self.image()

    def lock(self, **more: str) -> None:
        """Write the lock."""
        self.pins |= more
        text = "".join(f"{key}={value}\n" for key, value in self.pins.items())
        put(self.root, "locks/pins.source.lock", FORMAT + text)

    def image(
        self, dockerfile: str = DOCKERFILE, more: str = "", gates: str = GATE, name: str = "tiny", **keys: Any
    ) -> None:
        """Write an image; `more` are lines of its top level."""
        given = {
            "kind": "dockerfile",
            "lock": "pins",
            "base": "image:base",
            "build_node": self.node.name,
            "files": ["hello.sh"],
            **keys,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
        text = "\n".join([*lines, more or 'args = { VERSION = "1.2", LANES = 3, FAST = true }', gates])
        put(self.root, f"images/{name}/image.toml", text)
        put(self.root, f"images/{name}/Dockerfile.j2", dockerfile)

    def tags(self) -> list[str]:
        """All names in the node's docker, sorted."""
        return sorted(self.node.docker("images", "--format", "{{.Repository}}:{{.Tag}}").out.split())

    def inspect(self, name: str = "tiny") -> dict[str, Any]:
        """The newest labelled image of a name."""
        found: dict[str, Any] = json.loads(self.node.docker("image", "inspect", self.receipt(name)["reference"]).out)[0]
        return found

    def receipt(self, name: str = "tiny") -> dict[str, Any]:
        """The newest receipt of an image on the node."""
        paths = self.node.path(f"{STORE}/archives/{name}").glob("*/receipt.json")
        found = [json.loads(path.read_text()) for path in paths]
        return dict(max(found, key=lambda receipt: receipt["at"]))

    def log(self, task: str = "image:tiny") -> str:
        """The newest log of a task."""
        logs = sorted((self.root / ".sparkbuild/runs").glob(f"*/{task.replace(':', '_')}.log"))
        return logs[-1].read_text()

    def reset(self) -> None:
        """Nothing on the node but its base, if it got there."""
        docker = self.node.docker
        for tag in self.tags():
            if not tag.startswith("sparkbuild/base:"):
                docker("image", "rm", "--force", tag, check=False)
        self.node.run(["sh", "-c", f"rm -rf {STORE}/archives {STORE}/blobs {STORE}/contexts"], check=True)

    def clean(self) -> bool:
        """Nothing of a build is left that failed, or was ended."""
        docker = self.node.docker
        left = docker("ps", "--all", "--quiet").out + "".join(tag for tag in self.tags() if "tiny" in tag)
        files = self.node.run(["sh", "-c", f"find {STORE}/contexts -name '*.tar*'; ls /dev/shm"]).out
        return not left and "sparkbuild-build" not in files and ".tar" not in files
