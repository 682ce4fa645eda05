"""The container of one rank, as arguments of docker-py, named as in the Docker Engine API (ContainerCreate). Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from sparkbuild.agent.wire.lanelabels import PREFIX, store_id
from sparkbuild.core.errors import ConfigError
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.render import SECRETS, Bind
from sparkbuild.serving.launch.runtime import Order

LOGS = {"max-size": "64m", "max-file": "3"}  # kept after death, and bounded: an engine can log for weeks


def labels(order: Order) -> dict[str, str]:
    """What a container says of itself; no path, no secret, no variable of the environment."""
    spec: LaneSpec = order.goal.spec
    shown = {name: value for name, value in order.goal.key.parts.items() if name != "env"}
    texts = {
        "recipe": spec.recipe,
        "cluster": spec.cluster,
        "launch": order.number,
        "store": store_id(order.rank.store),
        "by": order.by,
        "rank": str(order.rank.rank),
        "world_size": str(order.rank.world_size),
        "key": order.goal.key.digest,
        "parts": json.dumps(shown, sort_keys=True, ensure_ascii=False, separators=(",", ":")),
        "lock": spec.lock,
        "model_id": spec.model_id,
        "port": str(spec.port if order.rank.rank == 0 else 0),
    }
    return {f"{PREFIX}{name}": text for name, text in texts.items()}


def host_config(order: Order) -> dict[str, object]:
    """Arguments for docker-py's `create_host_config`, mounts apart."""
    wanted = order.goal.spec.docker
    config: dict[str, object] = {
        "network_mode": "host",
        "init": wanted.init,
        "restart_policy": {"Name": "no"},  # a lane that ends stays ended, and says so
        "log_config": {"Type": "json-file", "Config": LOGS},
    }
    devices = (text.partition(":") for text in wanted.devices)
    if_set: dict[str, object] = {
        "devices": [f"{source}:{target or source}:rwm" for source, _, target in devices],
        "cap_add": list(wanted.capabilities),
        "ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in wanted.ulimits.items()],
        "shm_size": wanted.shm_size,
        # the same number twice: a GPU that shares the memory must never wait for swap
        "mem_limit": wanted.memory,
        "memswap_limit": wanted.memory,
        "nano_cpus": int((wanted.cpus or 0) * 1e9),
        "device_requests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}] if wanted.gpus else [],
    }
    return config | {name: value for name, value in if_set.items() if value}


def binds(order: Order) -> tuple[Bind, ...]:
    """All mounts of the container, the secrets too."""
    secrets = {name: os.path.join(order.secrets, name) for name in order.launch.secrets if order.secrets}
    files = (Bind(path, f"{SECRETS}/{name}", read_only=True) for name, path in secrets.items())
    return (*order.launch.mounts, *files)


def entrypoint(spec: LaneSpec, baked: Sequence[str], argv: Sequence[str]) -> list[str] | None:
    """The entrypoint to ask for: None is the image's own, `baked`.

    Raises ConfigError when the image's entrypoint is the beginning of the command already: it would run
    `vllm serve vllm serve ...`. A wrapper that ends in `exec "$@"` is no program of the command, and passes.
    """
    if spec.docker.entrypoint is not None:
        return list(spec.docker.entrypoint)
    for length in range(min(len(baked), len(argv)), 0, -1):
        if list(map(_program, baked[-length:])) == list(map(_program, argv[:length])):
            raise ConfigError(
                f"the entrypoint of image {spec.image} would double the command",
                where=f"{spec.folder}/recipe.toml",
                found=f"entrypoint {json.dumps(list(baked))} before command {json.dumps(list(argv[:4]))}",
                wanted="one of the two to begin with the program",
                next="set entrypoint = [] in [serve.docker], or leave what the image runs out of serve.command",
            )
    return None


def way_out(node: str, name: str) -> str:
    """The commands that free the name of a container that is not ours."""
    return f"on {node}: docker rename {name} {name}-old, or docker rm -f {name} when it is yours to end"


def _program(word: str) -> str:
    """A word of a command without its folder; python3.12 and python are one program."""
    name = os.path.basename(word.rstrip("/")) or word
    return "python" if name.startswith("python") and not name[6:].strip("0123456789.") else name
