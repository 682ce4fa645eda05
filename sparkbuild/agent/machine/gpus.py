"""GPUs of this node and their driver's version, as the driver tells in /proc. Never slow, never an error."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

from sparkbuild.agent.machine.system import text

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import Gpu

FOLDER = "/proc/driver/nvidia"
PATIENCE = 0.08  # seconds for nvidia-smi, which takes a second when the driver is not loaded
_INDEX = re.compile(r"[0-9]{1,4}")  # str.isdigit() takes what int() does not
_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")


def gpus(folder: str = FOLDER) -> tuple[list[Gpu], str]:
    """GPUs in the order of their bus, which is how CUDA numbers equal ones, and the driver; ([], "") without any."""
    if not os.path.isdir(folder):
        return _asked()
    line = next((line for line in text(f"{folder}/version").splitlines() if line.startswith("NVRM")), "")
    version = _VERSION.search(line)
    driver = version.group() if version else ""
    cards: list[Gpu] = []
    try:
        places = sorted(os.listdir(f"{folder}/gpus"))
    except OSError:
        places = []
    for index, place in enumerate(places):
        rows = (row.partition(":") for row in text(f"{folder}/gpus/{place}/information").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in rows}
        cards.append({
            "index": index, "name": fields.get("Model", ""), "uuid": fields.get("GPU UUID", ""), "driver": driver,
        })  # fmt: skip
    return cards, driver


def _asked() -> tuple[list[Gpu], str]:
    """By nvidia-smi, where the driver keeps no folder in /proc (WSL)."""
    folders = os.environ.get("PATH", "/usr/bin").split(os.pathsep)
    path = next((path for folder in folders if os.access(path := f"{folder}/nvidia-smi", os.X_OK)), "")
    if not path:
        return [], ""
    import subprocess  # noqa: PLC0415 - 10 ms, for a rare case

    argv = [path, "--query-gpu=index,name,uuid,driver_version", "--format=csv,noheader"]
    try:
        process = subprocess.Popen(argv, stdin=-3, stdout=-1, stderr=-3, start_new_session=True)  # noqa: S603 - its own program
    except OSError:
        return [], ""
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except (subprocess.TimeoutExpired, OSError):
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        # not waited for here: a driver that hangs does not even let it die
        threading.Thread(target=process.wait, daemon=True).start()
        return [], ""
    return parse(out.decode(errors="replace")) if process.returncode == 0 else ([], "")


def parse(out: str) -> tuple[list[Gpu], str]:
    """Rows of nvidia-smi: index, name, uuid, driver; rows that are none are left out."""
    rows = [[field.strip() for field in line.split(",")] for line in out.splitlines()]
    cards: list[Gpu] = [
        {"index": int(row[0]), "name": row[1], "uuid": row[2], "driver": row[3]}
        for row in rows
        if len(row) == 4 and _INDEX.fullmatch(row[0])
    ]
    return cards, cards[0]["driver"] if cards else ""
