"""Docker on this node: the engine, the images asked for, and the containers that are ours or run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.docker.engine import Dockerd, DockerdError, layers_of
from sparkbuild.agent.docker.ours import created_at, lanes
from sparkbuild.agent.machine.together import together
from sparkbuild.agent.wire.lanelabels import ALIVE

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import Container, DockerFact, DockerImage

_EXITED = re.compile(r"Exited \((\d+)\)")
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_NO_GPU = {"", "void", "none"}  # values of NVIDIA_VISIBLE_DEVICES that give a container nothing


def docker_fact(socket: str, references: list[str]) -> DockerFact:
    """What docker knows. When it does not answer, `problem` says why, and nothing is known of images and containers."""
    engine = Dockerd(socket)
    fact = no_docker("")
    looks: dict[str, Callable[[], Any]] = {
        "version": partial(engine.get, "/version"),
        "info": partial(engine.get, "/info"),
        "containers": partial(_containers, engine),
        **{f"image {reference}": partial(engine.image, reference) for reference in references},
    }
    found = together(looks, engine.timeout + 1)
    for error in found.values():
        if isinstance(error, Exception):
            fact["problem"] = fact["problem"] or _problem(error)
    version, info = _object(found["version"]), _object(found["info"])
    fact["present"] = bool(version.get("Version"))
    fact["version"] = str(version.get("Version", ""))
    fact["api"] = str(version.get("ApiVersion", ""))
    fact["arch"] = str(version.get("Arch", ""))
    fact["store"] = str(info.get("Driver", ""))
    fact["root"] = str(info.get("DockerRootDir", ""))
    fact["gives_gpus"] = gives_gpus(info)
    fact["remaps_users"] = any("name=userns" in str(option) for option in info.get("SecurityOptions") or ())
    if not isinstance(found["containers"], Exception):
        fact["containers"] = found["containers"]
    for reference in references:
        image = found[f"image {reference}"]
        fact["images"][reference] = _image(image) if isinstance(image, dict) else None
    return fact


def no_docker(problem: str) -> DockerFact:
    """What is known of a docker that does not answer."""
    return {
        "present": False, "problem": problem, "version": "", "api": "", "store": "", "root": "", "arch": "",
        "images": {}, "containers": [], "gives_gpus": False, "remaps_users": False,
    }  # fmt: skip


def gives_gpus(info: dict[str, Any], folders: tuple[str, ...] = _PROGRAMS) -> bool:
    """Whether `--gpus` can work: by the nvidia runtime, by the hook that dockerd looks for on its PATH, or by CDI."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return True
    if any(os.path.exists(f"{folder}/nvidia-container-runtime-hook") for folder in folders):
        return True
    for folder in info.get("CDISpecDirs") or ():
        try:
            if any("nvidia" in name for name in os.listdir(str(folder))):
                return True
        except OSError:
            continue
    return False


def uses_gpu(inspected: dict[str, Any]) -> bool:
    """Whether a container was given a GPU, in any of the ways there are: --gpus, a CDI device, a plain device, or the
    nvidia runtime with its variable. Its environment is looked at, and not told.
    """
    host = inspected.get("HostConfig") or {}
    for request in host.get("DeviceRequests") or ():
        kinds = [kind for group in request.get("Capabilities") or () for kind in group]
        ids = request.get("DeviceIDs") or ()
        if "gpu" in kinds or request.get("Driver") == "nvidia" or any("nvidia.com/" in str(one) for one in ids):
            return True
    if any(str(device.get("PathOnHost", "")).startswith("/dev/nvidia") for device in host.get("Devices") or ()):
        return True
    env = dict(str(one).partition("=")[::2] for one in (inspected.get("Config") or {}).get("Env") or ())
    return host.get("Runtime") == "nvidia" and env.get("NVIDIA_VISIBLE_DEVICES", "") not in _NO_GPU


def _containers(engine: Dockerd) -> list[Container]:
    listed = [entry for entry in engine.containers() if _is_ours(entry) or entry.get("State") in ALIVE]
    ids = [str(entry["Id"]) for entry in listed if entry.get("State") in ALIVE]
    running: dict[str, Callable[[], Any]] = {one: partial(engine.container, one) for one in ids}
    inspected = together(running, engine.timeout)
    ours = {str(entry["Id"]) for entry in lanes(engine, listed)}
    return [_row(entry, _object(inspected.get(str(entry["Id"]))), ours=str(entry["Id"]) in ours) for entry in listed]


def _is_ours(entry: dict[str, Any]) -> bool:
    return any(str(label).startswith("sparkbuild.") for label in entry.get("Labels") or ())


def _row(entry: dict[str, Any], inspected: dict[str, Any], *, ours: bool) -> Container:
    labels = entry.get("Labels") or {}
    exited = _EXITED.match(str(entry.get("Status", "")))
    return {
        "id": str(entry["Id"]),
        "name": str((entry.get("Names") or [""])[0]).lstrip("/"),
        "image": str(entry.get("Image", "")),
        "image_id": str(entry.get("ImageID", "")),
        "state": str(entry.get("State", "")),
        "status": str(entry.get("Status", "")),
        "labels": labels,
        "created": float(created_at(entry)),
        "pid": int((inspected.get("State") or {}).get("Pid") or 0),
        "started": str((inspected.get("State") or {}).get("StartedAt") or ""),
        "exit_code": int(exited.group(1)) if exited else None,
        "gpu": uses_gpu(inspected),
        "ours": ours,
    }


def _image(image: dict[str, Any]) -> DockerImage:
    config = image.get("Config") or {}
    return {
        "id": str(image.get("Id", "")),
        "tags": list(image.get("RepoTags") or ()),
        "labels": config.get("Labels") or {},
        "layers": layers_of(image),
        "arch": str(image.get("Architecture", "")),
        "os": str(image.get("Os", "")),
        "entrypoint": list(config.get("Entrypoint") or ()),
        "cmd": list(config.get("Cmd") or ()),
        "user": str(config.get("User") or ""),
        "size": int(image.get("Size") or 0),
    }


def _problem(error: Exception) -> str:
    return error.problem if isinstance(error, DockerdError) else f"dockerd: {error}"


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
