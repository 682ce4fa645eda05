"""Locked wheels as entries of a layer, for a Python and a platform that need not be this node's."""

from __future__ import annotations

import os
import sys
import zipfile
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Any, cast

from sparkbuild.agent.disk import openzip
from sparkbuild.agent.disk.held import created
from sparkbuild.agent.image.layer import Layer, checked, refused
from sparkbuild.agent.store.pip import pip
from sparkbuild.agent.store.tar import FILE, Entry
from sparkbuild.agent.wire.protocol import Reporter, config_error

LIMIT = 16 << 30  # bytes of one wheel when unpacked
_SCRIPT = 16 << 20  # bytes; scripts are read into memory
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC = 36  # the newest 2.x that wheels may want: that of Debian 12
_OLD = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # PEP 600: names from before there was a rule


def site(python: str) -> str:
    """Where Debian's Python looks for what was installed beside its packages."""
    return f"usr/local/lib/python{python}/dist-packages"


def add_wheels(
    layer: Layer, requirements: str, *, python: str, architecture: str, work: str, reporter: Reporter
) -> None:
    """Download what the requirements pin into the folder `work`, and add it to a layer, unpacked here: pip's own
    installation differs from one pip to the next. There are no console scripts and no .pyc files.

    Raises AgentError: "config" for requirements with markers, "integrity" for a hash that is not the locked one.
    """
    _check(requirements)
    wanted = os.path.join(work, "requirements.lock")
    with created(wanted) as file:
        file.write(requirements.encode())
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    argv += ["--progress-bar", "off", "--disable-pip-version-check", "--no-input", "-d", work]
    argv += ["--implementation", "cp", "--python-version", python, "--abi", f"cp{python.replace('.', '')}"]
    argv += ["--abi", "abi3", "--abi", "none"]
    for platform in platforms(architecture):
        argv += ["--platform", platform]
    argv += ["-r", wanted]  # last, where pip() reads what is to come
    pip(argv, work, reporter, "download the wheels", {"TMPDIR": work})
    for name in sorted(os.listdir(work)):
        if name.endswith(".whl"):
            _add_wheel(layer, os.path.join(work, name), python)


def platforms(architecture: str) -> list[str]:
    """The platform tags that a Debian 12 takes, the newest first."""
    machine = _MACHINES[architecture]
    tags = []
    for minor in range(_GLIBC, 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLD and (machine == "x86_64" or minor == 17):
            tags.append(f"{_OLD[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def _check(requirements: str) -> None:
    for number, line in enumerate(requirements.splitlines(), 1):
        if ";" in line.partition("#")[0]:
            raise config_error(
                "the requirements of a docker image have a condition, which pip would judge by this node's Python",
                found=f"line {number}: {line.strip()[:100]}",
                wanted="requirements for one Python and one platform",
                next="uv pip compile --python-version 3.x --python-platform ... (without --universal)",
            )


def _add_wheel(layer: Layer, path: str, python: str) -> None:
    origin = os.path.basename(path)
    with _whole(origin), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    if sum(member.file_size for member in members) > LIMIT:
        raise refused("it is too big when it is unpacked", origin, f"more than {LIMIT} bytes")
    for member in members:
        name = checked(member.filename, origin)
        executable = bool(member.external_attr >> 16 & 0o111)
        place = _place(name, python)
        if place.startswith("usr/local/bin/"):
            if member.file_size > _SCRIPT:
                raise refused("a script that is too big to be one", origin, f"{name}: {member.file_size} bytes")
            # With a size: without one, zipfile asks for as many bytes as the archive says the member has packed.
            with _whole(origin), zipfile.ZipFile(path) as archive, archive.open(member) as file:
                content = file.read(_SCRIPT)
            layer.add_bytes(place, _script(content, python), 0o755, origin)
        else:
            opened = partial(_open, path, member)
            layer.add(place, Entry(FILE, 0o755 if executable else 0o644, origin, member.file_size, open=opened))


def _place(name: str, python: str) -> str:
    """Where a member of a wheel goes: the binary distribution format's rules for `<name>.data` folders."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data") or not rest:
        return f"{site(python)}/{name}"
    scheme, _, inner = rest.partition("/")
    homes = {"purelib": site(python), "platlib": site(python), "scripts": "usr/local/bin", "data": "usr/local"}
    homes["headers"] = f"usr/local/include/python{python}/{top.partition('-')[0]}"
    if scheme not in homes or not inner:
        raise refused("a wheel with a folder that has no place", name, scheme)
    return f"{homes[scheme]}/{inner}"


def _script(content: bytes, python: str) -> bytes:
    """A script with the interpreter of the image."""
    first, newline, rest = content.partition(b"\n")
    return f"#!/usr/bin/python{python}".encode() + newline + rest if first.startswith(b"#!python") else content


def _open(path: str, member: zipfile.ZipInfo) -> IO[bytes]:
    with _whole(os.path.basename(path)):
        archive = zipfile.ZipFile(path)
        try:
            unpacked: Any = _Member(
                archive.open(member), os.path.basename(path), member.file_size
            )  # keeps the file open
        finally:
            archive.close()
    return cast("IO[bytes]", unpacked)


def _whole(origin: str) -> AbstractContextManager[None]:
    return openzip.whole(partial(refused, "it is no whole wheel", origin))


class _Member:
    """A member of so many bytes that is read once."""

    def __init__(self, unpacked: IO[bytes], origin: str, size: int) -> None:
        self._unpacked, self._origin, self._left = unpacked, origin, size

    def __enter__(self) -> _Member:  # noqa: PYI034 - Self is not in 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._unpacked.close()

    def read(self, size: int = -1) -> bytes:
        with _whole(self._origin):
            data = self._unpacked.read(size)
        if len(data) < (self._left if size < 0 else min(size, self._left)):
            raise refused("it is no whole wheel", self._origin, "a file in it ends before its size")
        self._left -= len(data)
        return data
