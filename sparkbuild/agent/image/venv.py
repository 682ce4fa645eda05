"""Images of kind `venv`: a Python environment from locked wheels, built once per key, with a receipt."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import fsync_folder, write_json
from sparkbuild.agent.disk.held import created, remove, remove_tree, rename
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.image import libraries, tree
from sparkbuild.agent.image.look import RECEIPT_FORMAT, folder_of, read_receipt
from sparkbuild.agent.store.pip import pip
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import VenvRequest
    from sparkbuild.agent.wire.receipts import ImageReceipt
    from sparkbuild.agent.wire.store import Bytes

_PART, _OLD = ".part", ".old"  # endings of folders that no run takes for an image
_LEAST = 32 << 20  # bytes; an environment with nothing but pip in it has half of that
WHEELS = "wheels"  # in the store: what a node without internet installs from
KEEP = 2  # images of one name on a node: the current one, and the one before


def run(request: VenvRequest, reporter: Reporter) -> Bytes:
    """Build the environment. Errors: kind "config" when this node's Python is too old or has no venv, "integrity" when
    a wheel is not the locked one, "node" when pip fails, "engine" when a module does not import.
    """
    folder = folder_of(request["store"], request["name"], request["key"][:12])
    base = os.path.dirname(folder)
    os.makedirs(base, exist_ok=True)
    _check_python(request)
    with locked(os.path.join(base, ".lock"), f"image {request['name']}"):
        part, old = f"{folder}{_PART}", f"{folder}{_OLD}"
        _sweep(base)
        try:
            size = _build(request, part, reporter)
        except BaseException:
            remove_tree(part)
            raise
        if os.path.lexists(folder):  # wrong, else nobody would build it; a lane may still run from it
            rename(folder, old)
        rename(part, folder)
        fsync_folder(base)
        _sweep(base)
        _prune(base, folder, reporter)
        return {"bytes": size}


def _sweep(base: str) -> None:
    """Remove what interrupted builds left; whoever holds the image's lock is the only one at work here."""
    for entry in os.listdir(base):
        if entry.endswith((_PART, _OLD)):
            remove_tree(os.path.join(base, entry))


def _check_python(request: VenvRequest) -> None:
    wanted = tuple(int(number) for number in request["python"].split("."))
    if sys.version_info[:2] < wanted:
        raise config_error(
            f"image {request['name']} needs a newer Python on this node",
            found=f"Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})",
            wanted=f"Python {request['python']} or newer",
            next=_other_python(request),
        )


def _other_python(request: VenvRequest) -> str:
    name = f"python{request['python']}"
    if request.get("remote"):
        return f'install {name} on that node, and set python = "{name}" in its table of config.toml'
    return f"install it and make the environment anew with it: SPARKBUILD_PYTHON={name} ./doitw ..."


def _build(request: VenvRequest, part: str, reporter: Reporter) -> int:
    reporter.progress("create the environment", 0, None)
    temporary = os.path.join(part, "tmp")  # on the same disk, and gone with the part
    os.makedirs(temporary)
    env = {"TMPDIR": temporary}
    _create(request, part, env)
    python = os.path.join(part, "bin", "python")
    wanted = os.path.join(part, "requirements.lock")
    with created(wanted) as file:
        file.write(request["requirements"].encode())
    argv = [python, "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:", "--progress-bar", "off"]
    argv += ["--disable-pip-version-check", "--no-input", "-r", wanted]
    if request["offline"]:
        _install_offline(request, argv, part, reporter, env)
    else:
        pip(argv, part, reporter, f"install {request['name']}", env, remote=bool(request.get("remote")))
    remove_tree(temporary)
    os.makedirs(os.path.join(part, "files"))
    for name, text in request["files"].items():
        with created(os.path.join(part, "files", os.path.basename(name))) as file:
            file.write(text.encode())
    _import(request, python, reporter)
    _drop_scripts(part)
    reporter.progress("record its files", 0, None)
    size = tree.write(part)
    receipt: ImageReceipt = {
        "format": RECEIPT_FORMAT,
        "key": request["key"],
        "parts": request["parts"],
        "python": ".".join(map(str, sys.version_info[:3])),
        "imports": request["imports"],
        "bytes": size,
        "at": time.time(),
    }
    write_json(os.path.join(part, "receipt.json"), receipt)
    os.sync()  # thousands of small files: one sync is cheaper than an fsync each
    return size


def _create(request: VenvRequest, part: str, env: dict[str, str]) -> None:
    """An empty environment, with pip."""
    process = subprocess.run(  # noqa: S603 - argv is a list, no shell
        [sys.executable, "-m", "venv", part],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )
    if process.returncode:
        said = (process.stdout + process.stderr).strip()
        disk = os.statvfs(part)
        if disk.f_bavail * disk.f_frsize < _LEAST:  # it does not say so itself
            raise AgentError(
                f"create {request['name']}: no space left",
                kind="space",
                where=part,
                found=f"{disk.f_bavail * disk.f_frsize} bytes free",
                next="make room, then run again",
            )
        raise config_error(
            "this node's Python cannot make environments",
            found=said[-500:],
            next="on Debian and Ubuntu: apt install python3-venv",
        )


def _install_offline(request: VenvRequest, argv: list[str], part: str, reporter: Reporter, env: dict[str, str]) -> None:
    """No index, no proxy and no setting of this login: nothing that is not in the folder of wheels."""
    wheels = os.path.join(request["store"], WHEELS)
    os.makedirs(wheels, exist_ok=True)
    # the file of requirements stays the last
    argv = [*argv[:-2], "--isolated", "--no-index", "--find-links", wheels, *argv[-2:]]
    try:
        pip(argv, part, reporter, f"install {request['name']}", env)
    except AgentError as error:
        if error.fields["kind"] != "node":
            raise
        version = ".".join(map(str, sys.version_info[:2]))
        raise config_error(
            f"image {request['name']} cannot be installed: this node is offline, and has not all of its wheels",
            where=wheels,
            found=error.fields["found"],
            wanted=f"every wheel of the image's requirements.lock, for Python {version} on {os.uname().machine}",
            next="on a machine of that kind with internet: python3 -m pip download --require-hashes --only-binary :all:"
            f" -d wheels -r images/{request['name']}/requirements.lock; then copy the wheels there",
        ) from None


def _import(request: VenvRequest, python: str, reporter: Reporter) -> None:
    """The image's gate: what it is for must import, or it never gets its receipt."""
    for module in request["imports"]:
        done = subprocess.run(  # noqa: S603 - argv is a list, no shell
            [python, "-I", "-c", "import importlib, sys; importlib.import_module(sys.argv[1])", module],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stdout + done.stderr
            raise AgentError(
                f"image {request['name']}: module {module} does not import",
                kind="engine",
                found=libraries.last_lines(said) or f"exit code {done.returncode}",
                next=libraries.advice(said) or "mend what it says; the task's log has what was installed",
            )
        reporter.log(f"import {module}: ok")


def _drop_scripts(part: str) -> None:
    """Console scripts carry the build folder's path in their first line and would not survive the rename; everything
    is started as `bin/python -m ...` instead.
    """
    scripts = os.path.join(part, "bin")
    for name in os.listdir(scripts):
        if not re.fullmatch(r"python[0-9.]*", name):
            remove(os.path.join(scripts, name))


def _prune(base: str, current: str, reporter: Reporter) -> None:
    receipts = {}
    for entry in os.listdir(base):
        folder = os.path.join(base, entry)
        if folder != current and (receipt := read_receipt(folder)) is not None:
            receipts[folder] = receipt["at"]
    for folder in sorted(receipts, key=lambda entry: receipts[entry], reverse=True)[KEEP - 1 :]:
        if not _in_use(folder):
            reporter.log(f"removing the old image {os.path.basename(folder)}")
            remove_tree(folder)


def _in_use(folder: str) -> bool:
    """True when a process of this node was started with a path inside the folder."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if folder.encode() in file.read():
                        return True
            except OSError:
                continue
    return False
