"""What images are made of: manifests of registries, what docker saves and says, tars, packages of Debian, wheels."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.disk import opentar
from sparkbuild.agent.docker import bydigest, upstream
from sparkbuild.agent.docker.built import built
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import DockerdError
from sparkbuild.agent.docker.images import problem
from sparkbuild.agent.image import debs, export, repro, saved, wheels
from sparkbuild.agent.image.layer import Layer
from sparkbuild.agent.source import zipped
from sparkbuild.agent.wire.protocol import AgentError, Reporter
from tests.parsers.near import bounded, damaged, json_like
from tests.parsers.served import tcp, unix
from tests.parsers.test_docker_answers import IMAGE, answer

DIGEST = "sha256:" + "a" * 64
INDEX = {
    "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [{"digest": DIGEST, "size": 5, "platform": {"os": "linux", "architecture": "amd64"}}],
}  # fmt: skip
MANIFEST = {
    "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": {"digest": DIGEST, "size": 5}, "layers": [{"digest": DIGEST, "size": 5}, {"digest": DIGEST, "size": 7}],
}  # fmt: skip
CONFIG = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [DIGEST]}, "config": {}}


@given(data=json_like(INDEX))
def test_an_index(data: bytes) -> None:
    with bounded(AgentError):
        bydigest._of_platform(bydigest._object(data, DIGEST), "amd64", DIGEST)


@given(data=json_like(MANIFEST))
def test_a_manifest(data: bytes) -> None:
    with bounded(AgentError):
        config, layers = bydigest._contents(data, DIGEST)
        assert all(len(one) == 71 for one in (config, *(layer.digest for layer in layers)))


@given(data=json_like(CONFIG))
def test_a_config(data: bytes) -> None:
    with bounded():
        export._listed(data)


@given(
    body=json_like({"token": "abc"}),
    challenge=damaged(b'Bearer realm="http://127.0.0.1:9/token",service="s",scope="repository:x:pull"'),
    status=st.sampled_from([b"200", b"401", b"404", b"307", b"\xff"]),
    location=damaged(b"http://127.0.0.1:9/x"),
)
def test_a_registry_that_an_agent_asks(body: bytes, challenge: bytes, status: bytes, location: bytes) -> None:
    def says(asked: bytes) -> bytes:
        code = b"200" if b"/token" in asked else status
        head = b"HTTP/1.1 %s x\r\nWWW-Authenticate: %s\r\nLocation: %s\r\nConnection: close\r\n" % (
            code,
            challenge,
            location,
        )
        return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    with tcp(lambda asked: says(asked).replace(b":9/", b":%d/" % port)) as port, bounded(AgentError):
        asked = upstream.Upstream(f"127.0.0.1:{port}/x")
        asked.manifest(DIGEST)


@given(login=damaged(b"eyJ1c2VybmFtZSI6ICJhIiwgInBhc3N3b3JkIjogImIifQ=="))
def test_a_login_that_an_agent_is_given(login: bytes) -> None:
    with bounded():
        upstream._fields_of(login.decode("latin-1"))


EVENTS = [
    {"status": "Downloading", "id": "abc", "progressDetail": {"current": 5, "total": 10}},
    {"status": "Pull complete", "id": "abc", "progressDetail": {}},
    {"stream": "Loaded image: x\n"},
    {"error": "no space left on device"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("img")


class Mute(Reporter):
    """A reporter to nobody."""

    def emit(self, event: str, **fields: Any) -> None:
        json.dumps({"event": event, **fields})


@given(events=st.lists(st.sampled_from(EVENTS).flatmap(json_like), max_size=4))
def test_what_docker_says_of_a_pull(folder: Path, events: list[bytes]) -> None:
    told = bydigest._PullProgress(Mute())
    with unix(str(folder / "docker.sock"), answer(b"\r\n".join(events))) as place, bounded(DockerdError):
        DockerWork(place).pull("x", "y", told.event)


@given(made=json_like({"Id": "f" * 64, "Warnings": []}))
def test_what_docker_says_of_a_container_and_of_a_prune(folder: Path, made: bytes) -> None:
    def engine(asked: bytes) -> bytes:
        found = answer(b"[]" if b"GET /containers/json" in asked else made)
        return found.replace(b" 200 ", b" 201 ") if b"create" in asked else found

    with unix(str(folder / "docker.sock"), engine) as place, bounded(DockerdError):
        DockerWork(place).post("/build/prune")
        DockerWork(place).trial("x")


@given(image=json_like({**IMAGE, "Config": {"Labels": {"sparkbuild.parts": "{}", "sparkbuild.gates": "[" * 100_000}}}))
def test_the_labels_of_an_image(image: bytes) -> None:
    try:
        found = json.loads(image)
    except (ValueError, RecursionError):
        return

    class Engine:
        def image(self, _reference: str) -> Any:
            from sparkbuild.agent.docker.shapes import shaped  # noqa: PLC0415 - as the engine does

            return shaped(found) if isinstance(found, dict) and "Id" in found else None

    with bounded():
        seen = Engine().image("x")
        built(Engine(), "x", "c" * 64)  # type: ignore[arg-type]
        if seen:
            problem(seen, {"reference": "x", "key": "c" * 64, "architecture": "amd64", "layers": [DIGEST]})


def _tar(members: dict[str, bytes], kind: int = tarfile.GNU_FORMAT, **more: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.pax_headers = {key: str(value) for key, value in more.items()}
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _summed(header: bytes) -> bytes:
    """A header with the checksum that it must have to be read on."""
    header = header[:512].ljust(512, b"\0")
    total = sum(header[:148]) + 256 + sum(header[156:])
    return header[:148] + b"%06o\0 " % total + header[156:]


@st.composite
def tars(draw: st.DrawFn, members: dict[str, bytes]) -> bytes:
    """An archive whose headers say odd things, most often with the right checksum."""
    more = draw(st.dictionaries(
        st.sampled_from(["size", "mtime", "path", "linkpath", "uid", "GNU.sparse.map", "GNU.sparse.size",
                         "GNU.sparse.major", "GNU.sparse.minor", "GNU.sparse.realsize", "hdrcharset"]),
        st.sampled_from(["-512", "0", "1", "inf", "nan", "9" * 30, "x", "0,5,-1", "../x", "\0", "BINARY", "5\n1\n"]),
        max_size=3,
    ))  # fmt: skip
    data = _tar(members, draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])), **more)
    if draw(st.booleans()):
        block = draw(st.integers(0, 3)) * 512
        start, value = draw(st.sampled_from([
            (124, b"\xff" * 12), (124, b"\x80" + b"\xff" * 11), (124, b"77777777777\0"), (124, b"\xff" * 11 + b"\0"),
            (156, b"S"), (156, b"x"), (156, b"g"), (156, b"L"), (156, b"K"), (156, b"1"), (156, b"2"), (156, b"5"),
            (136, b"\x80" + b"\xff" * 11), (482, b"\1"), (386, b"\xff" * 96), (0, b"\xff" * 100),
        ]))  # fmt: skip
        header = data[block : block + 512]
        data = data[:block] + _summed(header[:start] + value + header[start + len(value) :]) + data[block + 512 :]
    return draw(damaged(data))


def _walk(opened: Callable[[], tarfile.TarFile]) -> int:
    count = 0
    with opened() as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            while content is not None and content.read(1 << 20):
                pass
            count += 1
    return count


@given(data=tars({"a": b"hello", "deep/b": bytes(600)}))
def test_a_tar(data: bytes) -> None:
    for mode in ("r:", "r|"):
        with bounded(tarfile.TarError):
            _walk(lambda mode=mode: opentar.opened(io.BytesIO(data), mode))  # type: ignore[misc]


@given(data=tars({"a": b"hello", "deep/b": bytes(600)}))
def test_the_files_of_a_layer(data: bytes) -> None:
    with bounded(tarfile.TarError):
        repro.rows_of(io.BytesIO(data))


def test_tars_that_hang_or_fill_the_memory(folder: Path) -> None:
    """Each of them did that to Python's own reader, or was taken for one that ends earlier."""
    good = _tar({"a": b"x"})
    text = _summed(good[:124] + b"%011o\0" % (400 << 20) + good[136:156] + b"x" + good[157:512])
    (folder / "big.tar").write_bytes(text)
    os.truncate(folder / "big.tar", 500 << 20)
    bad = {
        "negative": _summed(good[:124] + b"\xff" * 11 + b"\0" + good[136:512]) + good[512:],
        "no end": _summed(good[:124] + b"%011o\0" % 0 + good[136:156] + b"x" + good[157:512]) * 5000 + good,
        "damaged": good[:1024] + b"\1" * 512 + _tar({"b": b"y"}),
    }
    for data in bad.values():
        with bounded(), pytest.raises(tarfile.TarError):
            _walk(lambda data=data: opentar.opened(io.BytesIO(data)))  # type: ignore[misc]
    with bounded(), pytest.raises(tarfile.TarError):
        _walk(lambda: opentar.opened(str(folder / "big.tar")))
    assert _walk(lambda: opentar.opened(io.BytesIO(_tar({"a": b"x", "n" * 300: b"y"})))) == 2


LAYER = _tar({"etc/x": b"hello"})
LAYER_DIGEST = hashlib.sha256(LAYER).hexdigest()
LISTED = json.dumps([{"Config": "config.json", "RepoTags": ["x"], "Layers": ["0/layer.tar"]}]).encode()
SAVED = {
    "0/layer.tar": LAYER, f"blobs/sha256/{LAYER_DIGEST}": gzip.compress(LAYER, mtime=0), "config.json": b"{}",
    "manifest.json": LISTED,
}  # fmt: skip


@given(
    name=st.sampled_from(sorted(SAVED)),
    content=st.one_of(*(damaged(content) for content in SAVED.values()), json_like(json.loads(LISTED))),
    whole=st.booleans(),
    data=st.data(),
)
def test_what_docker_saves(folder: Path, name: str, content: bytes, whole: bool, data: st.DataObject) -> None:
    stream = _tar({**SAVED, name: content}) if whole else data.draw(tars({**SAVED, name: content}))
    with unix(str(folder / "docker.sock"), answer(stream)) as place, bounded(DockerdError, AgentError):
        image = saved.saved(DockerWork(place), "x", {f"sha256:{LAYER_DIGEST}"}, str(folder), lambda _done: None)
        assert set(image.layers) <= {f"sha256:{LAYER_DIGEST}"}


def _ar(members: dict[str, bytes]) -> bytes:
    found = b"!<arch>\n"
    for name, content in members.items():
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}".encode() + b"`\n"
        found += content + b"\n" * (len(content) % 2)
    return found


CONTROL = _tar({"./control": b"Package: x\nArchitecture: amd64\n"})
DATA = _tar({"./usr/bin/x": b"hello", "./bin/y": b"z"})
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data, ".gz": lambda data: gzip.compress(data, mtime=0), ".xz": lzma.compress,
}  # fmt: skip


def _package(folder: Path, data: bytes) -> None:
    path = folder / "x.deb"
    path.write_bytes(data)
    layer = Layer()
    debs.add_package(layer, str(path), hashlib.sha256(data).hexdigest(), "amd64", str(folder))
    layer.write(str(folder / "layer"))


@given(kind=st.sampled_from(sorted(PACK)), inner=tars({"./usr/bin/x": b"hello"}), control=st.booleans(), data=st.data())
def test_a_package_of_debian(folder: Path, kind: str, inner: bytes, control: bool, data: st.DataObject) -> None:
    both = {f"control.tar{kind}": CONTROL, f"data.tar{kind}": DATA}
    both[f"control.tar{kind}" if control else f"data.tar{kind}"] = inner
    package = _ar({"debian-binary": b"2.0\n", **{name: PACK[kind](content) for name, content in both.items()}})
    with bounded(AgentError):
        _package(folder, data.draw(damaged(package)))


def test_packages_that_fill_the_memory(folder: Path) -> None:
    wide = bytearray(lzma.compress(CONTROL, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    at = bytes(wide).index(b"\x21\x01") + 2  # of the filter's flags: the size of its dictionary, 40 is 4 GiB
    wide[at] = 40
    end = 12 + (wide[12] + 1) * 4
    wide[end - 4 : end] = struct.pack("<I", zlib.crc32(wide[12 : end - 4]))
    long = gzip.compress(_tar({"./control": bytes(300 << 20)}), 1)
    for name, content in (("control.tar.xz", bytes(wide)), ("control.tar.gz", long)):
        package = _ar({"debian-binary": b"2.0\n", name: content, "data.tar": DATA})
        with bounded(), pytest.raises(AgentError):
            _package(folder, package)


def _wheel() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x/__init__.py", "x-1.data/scripts/run", "x-1.dist-info/METADATA"):
            archive.writestr(zipfile.ZipInfo(name), b"#!python\nhello hello hello\n")
    return out.getvalue()


WHEEL = _wheel()


@st.composite
def zips(draw: st.DrawFn) -> bytes:
    """A wheel with bytes of its headers changed."""
    data = bytearray(WHEEL)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 4))
        data[at : at + 4] = draw(
            st.sampled_from([b"\xff\xff\xff\xff", bytes(4), b"\1\0\0\0", b"PK\1\2", b"\x63\0\0\0", b"../."])
        )
    return draw(damaged(bytes(data)))


@given(data=zips())
def test_a_wheel(folder: Path, data: bytes) -> None:
    path = folder / "x-1-py3-none-any.whl"
    path.write_bytes(data)
    with bounded(AgentError):
        layer = Layer()
        wheels._add_wheel(layer, str(path), "3.11")
        layer.write(str(folder / "layer"))


@given(data=zips())
def test_an_archive_to_stage_from(folder: Path, data: bytes) -> None:
    path = folder / "y.whl"
    path.write_bytes(data)
    view = memoryview(bytearray(1 << 10))
    with bounded(AgentError):
        archive = zipped.Archive(str(path))
        try:
            for info in archive.zip.infolist():
                member = archive.member(info.filename)
                member.read(view[: min(member.size, len(view))], 0)
                member.close()
        finally:
            archive.close()
