"""What must hold of a node after any fault, seen from outside: its disk, /proc and docker's socket.

Nothing of the product is imported here: a mistake that it makes when it writes is not made again when it is checked.
Every function returns sentences, one for each thing that is wrong; an empty list is "all is well".
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

OWN_FOLDER = ".sparkbuild"
CLAIM = "@sparkbuild-launch"
# What a node runs by itself: its init, sshd with its sessions, docker.
OF_THE_NODE = {"tini", "sshd", "dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "docker-proxy"}
ALIVE = {"running", "created", "paused", "restarting"}
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_HEX40 = re.compile(r"[0-9a-f]{40}\Z")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class View:
    """A node as this machine sees it: its first process, its root, and docker's socket."""

    name: str
    init: int
    store: str

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.init}/root")

    @property
    def folder(self) -> Path:
        """The store. Absolute links below it would lead to this machine's files: none is followed."""
        return self.root / self.store.lstrip("/")

    @property
    def socket(self) -> str:
        return f"{self.root}/run/docker.sock"


class Process(NamedTuple):
    """A process of a node; `pid` as this machine numbers it."""

    pid: int
    name: str
    argv: list[str]


# -- data: nothing wrong under a right name ------------------------------------------------------------------------


def staged_problems(store: Path, truth: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Staged folders `staged/<recipe>/<folder>`: `truth` has the sha256 of each path, by folder. Each file that is
    there is right. What was taken away is not wrong: the next look notices it.
    """
    problems = []
    for recipe in sorted(store.glob("staged/*")):
        asked = tuple(f"{recipe}/{folder}/" for folder in truth)
        problems += [f"{path}: nobody asked for it" for path in _plain_files(recipe) if not str(path).startswith(asked)]
        for folder, wanted in truth.items():
            for path in _plain_files(recipe / folder):
                problems += _content_problems(path, str(path.relative_to(recipe / folder)), wanted)
    return problems


def _content_problems(path: Path, name: str, wanted: Mapping[str, str]) -> list[str]:
    base = os.path.basename(name)
    parent = os.path.basename(os.path.dirname(name))
    if name in wanted:
        return [] if sha256_of(path) == wanted[name] else [f"{path}: wrong content under its final name"]
    if parent == "blobs" and _HEX64.match(base):
        return [] if sha256_of(path) == base else [f"{path}: wrong content under its final name"]
    if parent == "blobs" and _HEX40.match(base):
        return [] if _git_sha1_of(path) == base else [f"{path}: wrong content under its final name"]
    if parent in {"refs", "trees"} or base == "CACHEDIR.TAG":
        return []
    return [f"{path}: a file that the source does not have"]


def whole_problems(store: Path, recipe: str, truth: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A recipe that is served: every path of the truth is there and right, seen as an engine sees it (through links),
    and the ledger says the same.
    """
    problems = []
    for folder, wanted in truth.items():
        dst = store / "staged" / recipe / folder
        try:
            said = {entry["name"]: entry["sha256"] for entry in json.loads(_ledger(dst).read_bytes())["files"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{_ledger(dst)}: {error}")
            continue
        for name, sha256 in {**dict.fromkeys(said, ""), **wanted}.items():
            end = _within(dst, name)
            if end is None:
                problems.append(f"{dst}/{name}: not there")
            elif sha256_of(end) not in {sha256, said.get(name)}:
                problems.append(f"{dst}/{name}: wrong content, though the folder has a ledger")
    return problems


def _ledger(dst: Path) -> Path:
    return dst / OWN_FOLDER / "ledger.json"


def _within(dst: Path, name: str) -> Path | None:
    """The file that a name leads to without leaving `dst`; None where there is none. Links are read by their text."""
    path = dst / name
    for _ in range(8):
        if path.is_symlink():
            text = os.readlink(path)
            if text.startswith("/"):
                return None
            path = Path(os.path.normpath(path.parent / text))
        elif path.is_file() and str(path).startswith(f"{dst}/"):
            return path
        else:
            return None
    return None


def blob_problems(store: Path) -> list[str]:
    """Files that are named by their sha256, wherever a store keeps such."""
    named = [*store.glob("blobs/sha256/*"), *store.glob("incoming/*")]
    problems = [
        f"{path}: its sha256 is another"
        for path in sorted(named)
        if _HEX64.match(path.name) and path.is_file() and sha256_of(path) != path.name
    ]
    for path in sorted(store.glob("artifacts/*/*")):
        # beside the content: what is known of it, a lock, and what has not come yet
        files = [file for file in _plain_files(path) if file.suffix not in {".stamp", ".part"} and file.name != ".lock"]
        if _HEX64.match(path.name) and any(sha256_of(file) != path.name for file in files):
            problems.append(f"{path}: holds a file of another sha256")
    return problems


def record_problems(store: Path) -> list[str]:
    """Records that others read are JSON objects, or not there: never half of one."""
    problems = []
    for pattern in ("lanes/*/lane.json", "archives/*/*/receipt.json", "staged/*/**/.sparkbuild/ledger.json"):
        for path in sorted(store.glob(pattern)):
            try:
                value = json.loads(path.read_bytes())
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
                continue
            if not isinstance(value, dict):
                problems.append(f"{path}: no JSON object")
    return problems


def part_problems(store: Path) -> list[str]:
    """What is left of work that is done: looked at when a run has ended well, which had to use it or remove it."""
    suffixes = (".part", ".chunks", ".tmp")
    tops = ("staged", "blobs", "incoming", "archives", "lanes")
    named = [path for top in tops for path in _plain_files(store / top, all_=True)]
    return [
        f"{path}: left over, and nobody names it"
        for path in sorted(named)
        if path.name.endswith(suffixes) or path.name == "draft.jsonl"
    ]


# -- docker: no container that nobody names, the same image under one name -----------------------------------------


def container_problems(view: View, containers: Iterable[Mapping[str, Any]]) -> list[str]:
    """A container of ours that lives, or was made and never started, is named by the record of its lane."""
    problems = []
    for entry in containers:
        labels = {
            key: str(value) for key, value in (entry.get("Labels") or {}).items() if key.startswith("sparkbuild.")
        }
        recipe = labels.get("sparkbuild.recipe", "")
        if not labels or entry["State"] not in ALIVE:
            continue
        if not recipe:
            problems.append(f"{view.name}: container {entry['Names']} ({entry['State']}): of no lane")
        elif (named := lane_record(view.folder, recipe).get("container")) != entry["Id"]:
            shown = str(named)[:12]
            problems.append(
                f"{view.name}: container {entry['Id'][:12]} of {recipe} ({entry['State']}): record: {shown}"
            )
    return problems


def lane_record(store: Path, recipe: str) -> dict[str, Any]:
    """The record of a lane, {} where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        value = json.loads((store / "lanes" / recipe / "lane.json").read_bytes())
        return value if isinstance(value, dict) else {}
    return {}


def image_problems(images: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    """`images`: by node, the layers of each name. One name is one image, and its key is told by its label's layers."""
    first: dict[str, tuple[str, list[str]]] = {}
    problems = []
    for node, named in images.items():
        for reference, layers in named.items():
            other, wanted = first.setdefault(reference, (node, layers))
            if layers != wanted:
                problems.append(f"{reference} is another image on {node} than on {other}")
            if not layers:
                problems.append(f"{reference} on {node} has no layers")
    return problems


def ask(view: View, path: str) -> Any:
    """What docker answers, over its socket. OSError when it does not."""
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(20)
    try:
        connection.sock.connect(view.socket)
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"docker answers {answer.status}: {data[:200]!r}")
    return json.loads(data)


def containers_of(view: View) -> list[dict[str, Any]]:
    """All containers, in any state."""
    return list(ask(view, "/containers/json?all=1"))


def images_of(view: View) -> dict[str, list[str]]:
    """Layers of every name of ours in docker."""
    found = {}
    for entry in ask(view, "/images/json"):
        for tag in entry.get("RepoTags") or ():
            if tag.startswith("sparkbuild/"):
                found[tag] = list((ask(view, f"/images/{tag}/json").get("RootFS") or {}).get("Layers") or [])
    return found


# -- processes and holds ---------------------------------------------------------------------------------------------


def processes(view: View) -> Iterator[Process]:
    """Those of the node itself: a container has a namespace of its own, and docker says which are there."""
    space = os.readlink(f"/proc/{view.init}/ns/pid")
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/ns/pid") != space:
                continue
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
            if stat.rpartition(")")[2].split()[0] in "ZX":
                continue
            argv = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
            yield Process(int(name), stat.partition("(")[2].rpartition(")")[0], argv[:-1])


def waiting(view: View) -> list[str]:
    """What each process of the node waits for in the kernel: for the history of a run that does not end."""
    found = []
    for process in processes(view):
        with contextlib.suppress(OSError):
            stack = Path(f"/proc/{process.pid}/stack").read_text().split("\n")[:4]
            found.append(
                f"{process.pid} {process.name} {process.argv[-1:]}: {'; '.join(line.strip() for line in stack)}"
            )
    return found


def process_problems(view: View, containers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Processes that neither the node nor docker names. No operator may be at work when this is asked."""
    living = {entry["Id"] for entry in containers if entry["State"] in ALIVE}
    problems = []
    for process in processes(view):
        if process.name.startswith("containerd-shim"):
            shown = process.argv[process.argv.index("-id") + 1] if "-id" in process.argv else ""
            if shown and shown not in living:
                problems.append(f"{view.name}: a shim of container {shown[:12]}, which docker does not call alive")
        elif process.name not in OF_THE_NODE and process.argv != ["sleep", "infinity"]:
            problems.append(f"{view.name}: process {process.pid} {process.name} {' '.join(process.argv)[:200]}")
    return problems


def hold_problems(view: View) -> list[str]:
    """A claim to launch on the node that is held, though no operator is at work."""
    held = CLAIM in Path(f"/proc/{view.init}/net/unix").read_text()
    return [f"{view.name}: a launch holds the node, and nobody is at work"] if held else []


def secret_problems(view: View, containers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Secrets in memory, of lanes that do not live."""
    living = {
        str((entry.get("Labels") or {}).get("sparkbuild.recipe")) for entry in containers if entry["State"] in ALIVE
    }
    return [
        f"{view.name}: {path}: a secret of a lane that does not live"
        for path in (view.root / "dev/shm").glob("sparkbuild-*/**/*")
        if path.is_file() and not living & set(path.parts)
    ]


def operator_problems(home: Path) -> list[str]:
    """Processes of an operator that has ended: all that it starts here has its HOME."""
    mark = f"HOME={home}".encode()
    problems = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                shown = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                problems.append(f"process {name} of an operator that has ended: {shown[:200]}")
    return problems


# -- together --------------------------------------------------------------------------------------------------------


def idle_problems(views: Iterable[View], homes: Iterable[Path]) -> list[str]:
    """Nobody is at work: no process, container, hold or secret that nobody names. All nodes are on, docker answers."""
    problems = [problem for home in homes for problem in operator_problems(home)]
    for view in views:
        try:
            containers = containers_of(view)
        except OSError as error:
            problems.append(f"{view.name}: {error}")
            continue
        problems += container_problems(view, containers)
        problems += process_problems(view, containers)
        problems += hold_problems(view)
        problems += secret_problems(view, containers)
    return problems


def data_problems(views: Iterable[View], stores: Iterable[Path], truth: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Nothing wrong under a right name: on every node, and in the operators' own stores."""
    views = list(views)
    problems = []
    for store in [*(view.folder for view in views), *stores]:
        problems += staged_problems(store, truth) + blob_problems(store) + record_problems(store)
    return problems + image_problems({view.name: images_of(view) for view in views})


def _plain_files(folder: Path, *, all_: bool = False) -> Iterator[Path]:
    """Regular files below a folder; those in our own folders only with `all_`."""
    for base, folders, names in os.walk(folder):
        if not all_ and OWN_FOLDER in folders:
            folders.remove(OWN_FOLDER)
        for name in names:
            path = Path(base, name)
            if path.is_file() and not path.is_symlink():
                yield path


def sha256_of(path: Path) -> str:
    """Of a file's bytes, read now."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _git_sha1_of(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
