"""Build an image twice without cache, and say which layers and files differ. Nothing is kept of either."""

from __future__ import annotations

import hashlib
import os
import tarfile
from typing import IO, TYPE_CHECKING, Any

from sparkbuild.agent.disk import opentar
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, layers_of
from sparkbuild.agent.docker.program import find
from sparkbuild.agent.image.build import check_context, check_engine, have_base
from sparkbuild.agent.image.buildkit import BuildKit
from sparkbuild.agent.image.saved import is_layer, open_save, uncompressed
from sparkbuild.agent.store.kept import digest_of
from sparkbuild.agent.wire.protocol import Reporter
from sparkbuild.agent.wire.stopping import stoppable

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import FileDifference, LayerDifference, ReproRequest, ReproResult

OWNS_STDIN = True
MOST = 50  # files that are named of one layer
_FOLDER = f"{tarfile.DIRTYPE.decode()} "

Row = tuple[str, int, int, str, int]  # type and owner, mode, size, sha256 or link, mtime


def run(request: ReproRequest, reporter: Reporter) -> ReproResult:
    """Build it twice, and compare. Errors: as of `build`."""
    with (
        locked(os.path.join(request["store"], "archives", request["name"], ".build"), f"image {request['name']}"),
        stoppable(),
    ):
        engine = DockerWork(request["docker"] or SOCKET, timeout=3600.0)
        check_engine(request)
        kit = BuildKit(find(request["docker"]), request, reporter)
        context = check_context(request)
        have_base(engine, request, reporter)
        tags = [f"{request['reference']}.repro{number}" for number in (1, 2)]
        try:
            for tag in tags:
                kit.build(context, tag, cache=False)
            layers = [layers_of(engine.image(tag) or {}) for tag in tags]
            return _compared(engine, tags, layers, reporter)
        finally:
            for tag in tags:
                engine.untag(tag)


def _compared(engine: DockerWork, tags: list[str], layers: list[list[str]], reporter: Reporter) -> ReproResult:
    first_layers, second_layers = layers
    different: list[LayerDifference] = []
    if first_layers != second_layers:
        indexes = [
            _index(engine, tag, set(own) - set(other), reporter)
            for tag, own, other in ((tags[0], first_layers, second_layers), (tags[1], second_layers, first_layers))
        ]
        for number in range(max(len(first_layers), len(second_layers))):
            first, second = (own[number] if number < len(own) else "" for own in layers)
            if first != second:
                files = differences(indexes[0].get(first, {}), indexes[1].get(second, {}))
                dated = sum(file["folder"] and file["how"] == ["mtime"] for file in files)
                different.append({"number": number + 1, "count": len(files), "dated": dated, "files": files[:MOST]})
    return {"layers": len(first_layers), "different": different}


def differences(first: dict[str, Row], second: dict[str, Row]) -> list[FileDifference]:
    """The files that two layers do not have in common, and how they differ."""
    files: list[FileDifference] = []
    for path in sorted({*first, *second}):
        if path not in first or path not in second:
            files.append({"path": path, "how": ["added" if path not in first else "removed"], "folder": False})
        elif first[path] != second[path]:
            names = ("type", "mode", "content", "content", "mtime")
            pairs = zip(names, first[path], second[path], strict=True)
            how = list(dict.fromkeys(name for name, a, b in pairs if a != b))
            files.append({"path": path, "how": how, "folder": first[path][0].startswith(_FOLDER)})
    return files


def _index(engine: DockerWork, tag: str, wanted: set[str], reporter: Reporter) -> dict[str, dict[str, Row]]:
    """The files of the layers that are wanted, by diff id."""
    rows_by_layer = {}
    with open_save(engine, tag, lambda done: reporter.progress("compare", done, None)) as image:
        for member in image:
            content = image.extractfile(member) if member.isreg() and is_layer(member.name) else None
            if content is None:
                continue
            layer = _Hashed(uncompressed(content))
            try:
                rows = rows_of(layer)
            except tarfile.ReadError:
                continue  # a config
            layer.drain()
            digest = f"sha256:{layer.digest.hexdigest()}"
            if digest in wanted:
                rows_by_layer[digest] = rows
    return rows_by_layer


def rows_of(file: Any) -> dict[str, Row]:
    """The files of a layer's tar, by path."""
    rows: dict[str, Row] = {}
    with opentar.opened(file, "r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            told = member.linkname
            if content is not None:
                told = digest_of(content).hexdigest()
            owner = f"{member.type.decode('latin-1')} {member.uid}:{member.gid}"
            rows[member.name] = (owner, member.mode, member.size, told, int(member.mtime))
    return rows


class _Hashed:
    """A stream that knows the sha256 of what was read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self.digest.update(block)
        return block

    def drain(self) -> None:
        while self.read(1 << 20):
            pass
