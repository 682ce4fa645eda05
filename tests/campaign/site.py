"""Where a campaign happens: two nodes with small disks, two operators with a workspace each, and data to stage."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import warm
from tests.campaign.checker import View
from tests.images.packages import ar, tar
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.staging.hubcache import REPO, TWO_HOP, HubCache
from tests.workspace.helpers import FORMAT, put
from tests.workspace_tool import DODO, Tool

STORE = "/srv/sparkbuild"
SOURCE = "/srv/nas"
RECIPES = {"alpha": 8501, "beta": 8502}
MODEL_ID = "campaign"
DISK_MB = 400
FILE_MB = 9  # of each big file: several chunks of staging
BALLAST_MB = 6  # of the image, so that sending it takes a while

# Rank 0 answers like an engine, for ever; others only live. busybox alone, as its shell finds no other program.
SERVE = """\
if [ "$1" = 0 ]; then exec /bin/busybox nc -ll -p "$2" -e /bin/busybox sh "${0%/*}/answer.sh"; fi
exec /bin/busybox sleep 999999
"""
ANSWER = f"""\
read -r method path version
size=0
while read -r line; do
    line="${{line%$(printf '\\r')}}"
    [ -z "$line" ] && break
    case "$line" in [Cc]ontent-[Ll]ength:*) size="${{line#*: }}" ;; esac
done
[ "$size" = 0 ] || /bin/busybox head -c "$size" >/dev/null
body='{{}}'
case "$path" in
    */models) body='{{"data": [{{"id": "{MODEL_ID}"}}]}}' ;;
    */completions) body='data: {{"choices": [{{"delta": {{"content": "hello"}}, "finish_reason": "stop"}}]}}

data: [DONE]

' ;;
esac
printf 'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%s' "${{#body}}" "$body"
"""
RECIPE = """\
cluster = "pair"
image = "engine"
model_id = "{model_id}"

[serve]
runtime = "docker"
command = ["/bin/busybox", "sh", "{{{{ image.files }}}}/serve.sh", "{{{{ rank }}}}"]
head_args = ["{{{{ port }}}}"]
port = {port}
network = "none"
ready_timeout = 60.0
stop_grace = 2.0

[[staging]]
id = "files"
kind = "files"
src = "{source}/files"

[[staging]]
id = "model"
kind = "hub-mirror"
src = "{source}/hub"
repos = ["{repo}"]
"""
# Links are given up after seconds, not after a minute: the faults of a round are to fit into it.
_IMPATIENT = """
import sys
from sparkbuild.nodes.ssh import link
from sparkbuild.serving.ready import watching
link.PULSE, link.PATIENCE, watching.LOST = 1.0, 5.0, 6.0
from doit.__main__ import main
sys.exit(main())
"""


class Operator(Tool):
    """doit in one operator's workspace, impatient with silent nodes."""

    def __init__(self, name: str, root: Path, rack: Rack) -> None:
        self.name, self.home = name, root / "home"
        super().__init__(root, {"HOME": str(self.home), "USER": name, "LOGNAME": name})
        _workspace(root, rack)

    @property
    def store(self) -> Path:
        """That of this machine."""
        return self.root / "store"

    def start(self, *args: str) -> subprocess.Popen[str]:
        """See Tool. In a session of its own, as a terminal would have it."""
        pipe = subprocess.PIPE
        return warm.start(
            ["-c", _IMPATIENT, *args], cwd=self.root, env=self.env,
            stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip


@dataclass
class Site:
    """All of it. `truth` has the sha256 of every path that a staged folder holds when it is whole."""

    rack: Rack
    operators: list[Operator]
    truth: dict[str, dict[str, str]]

    @property
    def nodes(self) -> list[Node]:
        return self.rack.nodes

    def views(self) -> list[View]:
        """The nodes for the checker; another process is their first one after each boot."""
        return [View(node.name, node.pid, STORE) for node in self.nodes]


@contextmanager
def site(folder: Path, seed: int) -> Iterator[Site]:
    """A new one; the same seed gives the same data."""
    with Rack.up(2, disk_mb=DISK_MB) as rack:
        truth = {}
        for node in rack.nodes:
            truth = _data(node.path(SOURCE), random.Random(seed))
        operators = [Operator(name, folder / name, rack) for name in ("ann", "ben")]
        yield Site(rack, operators, truth)


def _data(top: Path, source: random.Random) -> dict[str, dict[str, str]]:
    """A folder of plain files and a hub cache; what staging is to make of them."""
    shutil.rmtree(top, ignore_errors=True)
    files = {f"part-{index}.bin": source.randbytes((FILE_MB << 20) + 137 * index) for index in range(2)}
    files |= {f"deep/er/{index}.json": source.randbytes(700) for index in range(20)}
    for name, data in files.items():
        path = top / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    cache = HubCache(top / "hub")
    cache.add("model-00001-of-00002.bin", source.randbytes(FILE_MB << 20))
    cache.add("model-00002-of-00002.bin", source.randbytes(FILE_MB << 20), TWO_HOP)
    cache.add("config.json", b'{"model_type": "campaign"}', lfs=False)
    cache.ref()
    cache.write_tree()
    snapshot = f"snapshots/{cache.commit}"
    return {
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        f"model/{cache.name}": {
            f"{snapshot}/{name}": hashlib.sha256(data).hexdigest() for name, data in cache.files.items()
        },
    }


def _workspace(root: Path, rack: Rack) -> None:
    put(root, "dodo.py", DODO)
    put(root, "home/.ssh/config", "Host *\n    ConnectTimeout 3\n")
    tables = [f'[nodes.local]\nconnection = "local"\nstore = {json.dumps(str(root / "store"))}\n']
    tables += [
        f'[nodes.{node.name}]\nconnection = "ssh"\naddress = "{node.address}"\nuser = "root"\n'
        f'key = "{node.key_file}"\nhost_key = "{node.host_key}"\nstore = "{STORE}"\noffline = true\n'
        for node in rack.nodes
    ]
    names = json.dumps([node.name for node in rack.nodes])
    put(root, "config.toml", "\n".join([*tables, f"[clusters.pair]\nnodes = {names}\n"]))
    package = _package()
    (root / "debs").mkdir()
    (root / "debs/engine.deb").write_bytes(package)
    pins = f"engine.artifact.url=file:debs/engine.deb\nengine.artifact.sha256={hashlib.sha256(package).hexdigest()}\n"
    put(root, "locks/pins.source.lock", FORMAT + pins)
    put(
        root,
        "images/engine/image.toml",
        'kind = "docker"\nlock = "pins"\ndebs = ["engine"]\nfiles = ["serve.sh", "answer.sh"]\n',
    )
    put(root, "images/engine/serve.sh", SERVE)
    put(root, "images/engine/answer.sh", ANSWER)
    for name, port in RECIPES.items():
        text = RECIPE.format(model_id=MODEL_ID, port=port, source=SOURCE, repo=REPO)
        put(root, f"recipes/{name}/recipe.toml", text)


def _package() -> bytes:
    """A Debian package of this machine's static busybox, and bytes that only take time; the same each time."""
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("busybox: apt-get install busybox-static")
    out = io.BytesIO()
    ballast = random.Random("ballast").randbytes(BALLAST_MB << 20)
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, content in (("./bin/busybox", Path(program).read_bytes()), ("./opt/ballast", ballast)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            file.addfile(info, io.BytesIO(content))
    control = tar([("./control", b"Package: engine\nVersion: 1\nArchitecture: amd64\n")])
    return ar([("debian-binary", b"2.0\n"), ("control.tar", control), ("data.tar", out.getvalue())])
