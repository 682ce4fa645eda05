"""Docker on this node: the engine, the images asked for, and the containers that are ours or run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparkbuild.agent.docker.engine import Dockerd, DockerdError, layers_of
from sparkbuild.agent.docker.ours import created_at, lanes, name_of
from sparkbuild.agent.machine.together import Looks, together
from sparkbuild.agent.wire.lanelabels import ALIVE, PREFIX

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import ContainerRow, Image, Info, Inspected, State, Version
    from sparkbuild.agent.wire.engine import Container, DockerFact, DockerImage

T = TypeVar("T")
_EXITED = re.compile(r"Exited \((\d+)\)")
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_NO_GPU = {"", "void", "none"}  # values of NVIDIA_VISIBLE_DEVICES that give a container nothing


def docker_fact(socket: str, references: list[str]) -> DockerFact:
    """What docker knows. When it does not answer, `problem` says why, and nothing is known of images and containers."""
    engine = Dockerd(socket)
    fact = no_docker("")
    looks = Looks(engine.timeout + 1)
    versions, infos, listed = (
        looks.begin(engine.version),
        looks.begin(engine.info),
        looks.begin(partial(_containers, engine)),
    )
    images = {reference: looks.begin(partial(engine.image, reference)) for reference in references}
    unknown_version: Version = {}
    unknown_info: Info = {}

    def known(wait: Callable[[], T | Exception], otherwise: T) -> T:
        outcome = wait()
        if isinstance(outcome, Exception):
            fact["problem"] = fact["problem"] or _problem(outcome)
            return otherwise
        return outcome

    version, info = known(versions, unknown_version), known(infos, unknown_info)
    fact["present"] = bool(version.get("Version"))
    fact["version"] = str(version.get("Version", ""))
    fact["api"] = str(version.get("ApiVersion", ""))
    fact["arch"] = str(version.get("Arch", ""))
    fact["store"] = str(info.get("Driver", ""))
    fact["root"] = str(info.get("DockerRootDir", ""))
    fact["gives_gpus"] = gives_gpus(info)
    fact["remaps_users"] = any("name=userns" in option for option in info.get("SecurityOptions") or ())
    fact["containers"] = known(listed, [])
    for reference, wait in images.items():
        image = known(wait, None)
        fact["images"][reference] = None if image is None else _image(image)
    return fact


def no_docker(problem: str) -> DockerFact:
    """What is known of a docker that does not answer."""
    return {
        "present": False, "problem": problem, "version": "", "api": "", "store": "", "root": "", "arch": "",
        "images": {}, "containers": [], "gives_gpus": False, "remaps_users": False,
    }  # fmt: skip


def gives_gpus(info: Info, folders: tuple[str, ...] = _PROGRAMS) -> bool:
    """Whether `--gpus` can work: by the nvidia runtime, by the hook that dockerd looks for on its PATH, or by CDI."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return True
    if any(os.path.exists(f"{folder}/nvidia-container-runtime-hook") for folder in folders):
        return True
    for folder in info.get("CDISpecDirs") or ():
        try:
            if any("nvidia" in name for name in os.listdir(folder)):
                return True
        except OSError:
            continue
    return False


def uses_gpu(inspected: Inspected) -> bool:
    """Whether a container was given a GPU, in any of the ways there are: --gpus, a CDI device, a plain device, or the
    nvidia runtime with its variable. Its environment is looked at, and not told.
    """
    host = inspected.get("HostConfig") or {}
    for request in host.get("DeviceRequests") or ():
        kinds = [kind for group in request.get("Capabilities") or () for kind in group]
        ids = request.get("DeviceIDs") or ()
        if "gpu" in kinds or request.get("Driver") == "nvidia" or any("nvidia.com/" in device for device in ids):
            return True
    if any(str(device.get("PathOnHost", "")).startswith("/dev/nvidia") for device in host.get("Devices") or ()):
        return True
    env = dict(setting.partition("=")[::2] for setting in (inspected.get("Config") or {}).get("Env") or ())
    return host.get("Runtime") == "nvidia" and env.get("NVIDIA_VISIBLE_DEVICES", "") not in _NO_GPU


def _containers(engine: Dockerd) -> list[Container]:
    listed = [entry for entry in engine.containers() if _is_ours(entry) or entry.get("State") in ALIVE]
    ids = [entry["Id"] for entry in listed if entry.get("State") in ALIVE]
    inspected = together({id_: partial(engine.container, id_) for id_ in ids}, engine.timeout)
    ours = {entry["Id"] for entry in lanes(engine, listed)}
    return [_row(entry, inspected.get(entry["Id"]), ours=entry["Id"] in ours) for entry in listed]


def _is_ours(entry: ContainerRow) -> bool:
    return any(label.startswith(PREFIX) for label in entry.get("Labels") or ())


def _row(entry: ContainerRow, outcome: Inspected | Exception | None, *, ours: bool) -> Container:
    inspected = None if isinstance(outcome, Exception) else outcome
    state: State = inspected["State"] if inspected else {}
    exited = _EXITED.match(str(entry.get("Status", "")))
    return {
        "id": entry["Id"],
        "name": name_of(entry),
        "image": str(entry.get("Image", "")),
        "image_id": str(entry.get("ImageID", "")),
        "state": str(entry.get("State", "")),
        "status": str(entry.get("Status", "")),
        "labels": entry.get("Labels") or {},
        "created": float(created_at(entry)),
        "pid": state.get("Pid") or 0,
        "started": str(state.get("StartedAt") or ""),
        "exit_code": int(exited.group(1)) if exited else None,
        "gpu": inspected is not None and uses_gpu(inspected),
        "ours": ours,
    }


def _image(image: Image) -> DockerImage:
    config = image.get("Config") or {}
    return {
        "id": image.get("Id", ""),
        "tags": list(image.get("RepoTags") or ()),
        "labels": config.get("Labels") or {},
        "layers": layers_of(image),
        "arch": image.get("Architecture", ""),
        "os": str(image.get("Os", "")),
        "entrypoint": list(config.get("Entrypoint") or ()),
        "cmd": list(config.get("Cmd") or ()),
        "user": str(config.get("User") or ""),
        "size": image.get("Size") or 0,
    }


def _problem(error: Exception) -> str:
    return error.problem if isinstance(error, DockerdError) else f"dockerd: {error}"
