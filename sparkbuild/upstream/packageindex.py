"""Asking the package index that pip is set up for: its index, proxies and certificates are pip's own settings."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from sparkbuild.core import child
from sparkbuild.core.errors import UpstreamError

_UNREACHED = (
    "NewConnectionError",
    "ConnectionError",
    "timed out",
    "Name or service not known",
    "ProxyError",
    "SSLError",
)


class Wheel(msgspec.Struct, frozen=True):
    """A wheel as the index has it now."""

    version: str
    filename: str
    sha256: str


def versions(name: str) -> list[str]:
    """All versions of a distribution that this Python can use, newest first. Raises UpstreamError."""
    said = _pip("index", "versions", name, what=f"{name}: the package index cannot be asked")
    match = re.search(r"^Available versions: (.+)$", said, re.MULTILINE)
    return [piece.strip() for piece in match[1].split(",")] if match else []


def wheel(name: str, version: str) -> Wheel:
    """The wheel of one version ("" for the newest), downloaded to learn its sha256. Raises UpstreamError."""
    wanted = f"{name}=={version}" if version else name
    with tempfile.TemporaryDirectory(prefix="sparkbuild-") as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "-d", folder]
        _pip("download", *options, wanted, what=f"{wanted}: there is no such wheel for this Python and platform")
        files = sorted(os.listdir(folder))
        if len(files) != 1 or not files[0].endswith(".whl"):
            raise UpstreamError(f"{wanted}: pip brought no wheel", found=", ".join(files) or "nothing")
        digest = hashlib.sha256()
        with Path(folder, files[0]).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return Wheel(files[0].split("-")[1], files[0], digest.hexdigest())


def _pip(verb: str, *arguments: str, what: str) -> str:
    """What pip says on stdout."""
    settings = ["--disable-pip-version-check", "--no-input", "--no-color"]
    argv = [sys.executable, "-m", "pip", verb, *settings, *(["--progress-bar", "off"] if verb == "download" else [])]
    process = child.spawn([*argv, *arguments], stdout=subprocess.PIPE)
    try:
        said = process.stdout.read().decode(errors="replace") if process.stdout else ""
    finally:
        code = child.reap(process)
        if process.stdout:
            process.stdout.close()
    if code:
        lines = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()[-3:]
        error = UpstreamError(what, found="\n".join(line[:300] for line in lines[:3]))
        error.reached = not any(text in said for text in _UNREACHED)
        raise error
    return said
