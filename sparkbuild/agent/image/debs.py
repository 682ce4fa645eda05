"""A Debian package (deb(5): an `ar` with control.tar and data.tar): its files as entries of a layer.

Its scripts are not run and nothing is unpacked into a folder. Names, links and sizes are not trusted.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from sparkbuild.agent.disk import opentar, zstd
from sparkbuild.agent.disk.held import created
from sparkbuild.agent.image.layer import Layer, checked, refused
from sparkbuild.agent.store.kept import digest_of
from sparkbuild.agent.store.tar import DIR, FILE, LINK, Entry
from sparkbuild.agent.wire.protocol import config_error

LIMIT = 2 << 30  # bytes of one package when unpacked
MOST = 200_000  # names of one package
_BLOCK = 1 << 20
_CONTROL = 1 << 20  # bytes
_CONTROLS = 16 << 20  # bytes of control.tar when unpacked; it is read into memory
_XZ = 128 << 20  # bytes of memory to unpack by: `xz -9` wants 65 MiB
_OPENERS: dict[str, Callable[..., Any]] = {
    "": lambda file: file,
    ".gz": gzip.open,
    ".xz": lambda file: io.BufferedReader(_Xz(file), _BLOCK),
    ".bz2": bz2.open,
    ".zst": zstd.unpacked,  # Ubuntu's
}
# Debian has had these as links into /usr since 12, and packages still name files by both.
_MERGED = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libo32", "libx32"})


def add_package(layer: Layer, path: str, sha256: str, architecture: str, work: str) -> None:
    """Add the files of the package at `path` to a layer. What it holds lies unpacked, as one tar, in the folder `work`
    until the layer is written.

    Raises AgentError: "integrity" for another sha256 and for content that is no package or a trap, "config" for the
    wrong architecture or a compression that this Python does not know.
    """
    origin = os.path.basename(path)
    with open(path, "rb") as file:
        digest = digest_of(file).hexdigest()
        if digest != sha256:
            raise refused("it is not what the lock pins", origin, f"sha256 {digest}")
        try:
            members = _members(file, origin)
            _check(_unpacked(file, members, "control.tar", origin), architecture, origin)
            data = os.path.join(work, f"{sha256}.tar")
            with created(data) as out:
                _unpack(file, members, "data.tar", origin, out)
            _add_all(layer, data, origin)
        except (EOFError, tarfile.TarError, lzma.LZMAError, zlib.error, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk
            raise refused("it is no whole Debian package", origin, str(error) or type(error).__name__) from None


def add_links(layer: Layer) -> None:
    """What the scripts of Debian's packages would do and every program expects: /bin as a link to usr/bin and so on,
    /tmp, the root account, and busybox as the shell when there is no other.
    """
    origin = "the base"
    tops = {name.split("/")[1] for name in layer.entries if name.startswith("usr/") and name.count("/") > 1}
    for name in sorted(_MERGED & (tops | {"bin", "sbin", "lib"})):
        layer.add(f"usr/{name}", Entry(DIR, 0o755, origin))
        layer.add(name, Entry(LINK, 0o777, origin, target=f"usr/{name}"))
    for name, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("run", 0o755), ("etc", 0o755)):
        layer.entries[name] = Entry(DIR, mode, origin)
    accounts = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    for name, text in (("etc/passwd", accounts), ("etc/group", "root:x:0:\nnogroup:x:65534:\n")):
        if name not in layer.entries:
            layer.add_bytes(name, text.encode(), 0o644, origin)
    if "usr/bin/busybox" in layer.entries and "usr/bin/sh" not in layer.entries:
        layer.add("usr/bin/sh", Entry(LINK, 0o777, origin, target="busybox"))


def _members(file: IO[bytes], origin: str) -> dict[str, tuple[int, int]]:
    """The members of the `ar`: name to place and size."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    if file.read(8) != b"!<arch>\n":
        raise refused("it is no Debian package", origin, "no `ar` archive")
    members: dict[str, tuple[int, int]] = {}
    while (place := file.tell()) < end:
        head = file.read(60)
        if len(head) < 60 or head[58:] != b"`\n" or not head[48:58].strip().isdigit():
            raise ValueError(f"no member at byte {place}")
        size, start = int(head[48:58]), file.tell()
        if start + size > end:
            raise ValueError("it ends early")
        members[head[:16].decode("latin-1").strip().rstrip("/")] = (start, size)
        file.seek(start + size + size % 2)
    return members


def _unpack(
    file: IO[bytes],
    members: dict[str, tuple[int, int]],
    wanted: str,
    origin: str,
    out: IO[bytes],
) -> None:
    name = next((name for name in members if name == wanted or name.startswith(f"{wanted}.")), "")
    if not name:
        raise ValueError(f"no {wanted}")
    opener = _OPENERS.get(name.removeprefix(wanted))
    if opener is None:
        raise config_error(
            f"{origin} is compressed in a way that this Python does not know",
            found=name,
            wanted=f"{wanted} with " + ", ".join(filter(None, _OPENERS)),
            next="use the package of another release, or pack it anew: dpkg-deb --build -Zxz",
        )
    start, size = members[name]
    total, limit = 0, _CONTROLS if wanted == "control.tar" else LIMIT
    with opener(_slice(file, start, size)) as stream:
        while block := stream.read(_BLOCK):
            total += len(block)
            if total > limit:
                raise refused("it is too big when it is unpacked", origin, f"{wanted} has more than {limit} bytes")
            out.write(block)


def _unpacked(file: IO[bytes], members: dict[str, tuple[int, int]], wanted: str, origin: str) -> bytes:
    out = io.BytesIO()
    _unpack(file, members, wanted, origin, out)
    return out.getvalue()


def _check(control: bytes, architecture: str, origin: str) -> None:
    """The package must be for the image's architecture, or for all."""
    with opentar.opened(io.BytesIO(control)) as tar:
        member = next((entry for entry in tar if entry.name in {"control", "./control"} and entry.isreg()), None)
        text = tar.extractfile(member) if member is not None and member.size < _CONTROL else None
        if text is None:
            raise ValueError("no control file")
        fields = text.read().decode(errors="replace").splitlines()
    package_architecture = next(
        (line.partition(":")[2].strip() for line in fields if line.startswith("Architecture:")), ""
    )
    if package_architecture not in {architecture, "all"}:
        raise config_error(
            f"{origin} is for another architecture than the image",
            found=package_architecture or "none named",
            wanted=architecture,
            next="pin the package for the image's platform",
        )


def _add_all(layer: Layer, data: str, origin: str) -> None:
    files: dict[str, Entry] = {}
    end = os.path.getsize(data)
    with opentar.opened(data) as tar:
        for count, member in enumerate(tar):
            if count >= MOST:
                raise refused("it has too many names", origin, f"more than {MOST}")
            path = _merged(checked(member.name, origin))
            mode = member.mode & 0o7777
            if member.isdir():
                layer.add(path, Entry(DIR, mode, origin))
            elif member.issym():
                layer.add(path, Entry(LINK, 0o777, origin, target=_target(member, origin)))
            elif member.islnk():
                there = files.get(_merged(checked(member.linkname, origin)))
                if there is None:
                    raise refused("a hard link to what it does not bring", origin, f"{member.name}: {member.linkname}")
                layer.add(path, there)
            elif member.isreg() and not member.issparse():
                if member.offset_data + member.size > end:
                    raise refused("it ends within a file", origin, f"/{path}: {member.size} bytes")
                source = partial(_part_of, data, member.offset_data, member.size)
                files[path] = Entry(FILE, mode, origin, member.size, open=source)
                layer.add(path, files[path])
            else:
                raise refused("it holds what is neither file, folder nor link", origin, f"/{path}")


def _target(member: tarfile.TarInfo, origin: str) -> str:
    """The text of a link. It may be absolute: in a container, `/` is the container's."""
    if not member.linkname or not member.linkname.isprintable():
        raise refused("a link to nowhere", origin, ascii(member.name))
    return member.linkname


def _merged(path: str) -> str:
    return f"usr/{path}" if path.partition("/")[0] in _MERGED else path


def _part_of(path: str, start: int, size: int) -> IO[bytes]:
    return _slice(open(path, "rb"), start, size, owner=True)


def _slice(file: IO[bytes], start: int, size: int, *, owner: bool = False) -> IO[bytes]:
    """A part of a file as a file. `owner`: closing it closes the file."""
    return io.BufferedReader(_Slice(file, start, size, owner=owner), _BLOCK)


class _Xz(io.RawIOBase):
    """An xz stream, unpacked in bounded memory: a header of a few bytes may ask for 4 GiB."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._unpacker = lzma.LZMADecompressor(memlimit=_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacker.eof:
            block = self._file.read(_BLOCK) if self._unpacker.needs_input else b""
            if self._unpacker.needs_input and not block:
                raise EOFError("an xz stream that ends early")
            data = self._unpacker.decompress(block, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
        return 0


class _Slice(io.RawIOBase):
    def __init__(self, file: IO[bytes], start: int, size: int, *, owner: bool) -> None:
        super().__init__()
        self._file = file
        self._place = start
        self._left = size
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._place)
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._place += len(data)
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        if self._owner:
            self._file.close()
        super().close()
