"""What docker is asked for: settings of the container, labels that give nothing away, entrypoints that double."""

from __future__ import annotations

import json
from typing import Any

import docker
import pytest

from sparkbuild.agent.wire import lanelabels
from sparkbuild.core.errors import ConfigError
from sparkbuild.serving.launch.container import binds, entrypoint, host_config, labels
from sparkbuild.serving.launch.render import Bind
from sparkbuild.workspace.shapes.schema import Docker, Mount
from tests.serving import lanes

SECRET = "hf_0123456789abcdef"
ALWAYS = {
    "network_mode": "host",
    "init": True,
    "restart_policy": {"Name": "no"},
    "log_config": {"Type": "json-file", "Config": {"max-size": "64m", "max-file": "3"}},
}

SETTINGS: dict[str, tuple[Docker, dict[str, Any]]] = {
    "none": (Docker(), {}),
    "no init": (Docker(init=False), {"init": False}),
    "devices": (
        Docker(devices=("/dev/infiniband", "/dev/a:/dev/b")),
        {"devices": ["/dev/infiniband:/dev/infiniband:rwm", "/dev/a:/dev/b:rwm"]},
    ),
    "capabilities": (Docker(capabilities=("IPC_LOCK",)), {"cap_add": ["IPC_LOCK"]}),
    "ulimits": (
        Docker(ulimits={"memlock": -1, "core": 0}),
        {"ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "core", "Soft": 0, "Hard": 0}]},
    ),
    "shared memory": (Docker(shm_size=1 << 30), {"shm_size": 1 << 30}),
    "memory": (Docker(memory=10**9), {"mem_limit": 10**9, "memswap_limit": 10**9}),
    "processors": (Docker(cpus=1.5), {"nano_cpus": 1_500_000_000}),
    "GPUs": (
        Docker(gpus=True),
        {"device_requests": [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}]},
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_host_config(name: str) -> None:
    settings, expected = SETTINGS[name]
    found = host_config(lanes.order(docker=settings))
    assert found == {**ALWAYS, **expected}
    docker.APIClient("unix:///nowhere.sock", version="1.41").create_host_config(**found)  # docker-py takes it


def test_devices_as_docker_is_told() -> None:
    found = host_config(lanes.order(docker=Docker(devices=("/dev/a:/dev/b",))))
    api = docker.APIClient("unix:///nowhere.sock", version="1.41")
    (device,) = api.create_host_config(**found)["Devices"]
    assert device == {"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "rwm"}


def test_name() -> None:
    assert lanelabels.name_of("demo") == "sparkbuild-demo"


def test_labels() -> None:
    order = lanes.order(1, {"HF_TOKEN": SECRET}, env={"THREADS": "of-the-environment"})
    found = labels(order)
    assert all(isinstance(value, str) for value in found.values()), "docker takes no other"
    parts = json.loads(found.pop("sparkbuild.parts"))
    assert found == {
        "sparkbuild.recipe": "demo",
        "sparkbuild.cluster": "pair",
        "sparkbuild.launch": "l1",
        "sparkbuild.store": lanelabels.store_id(order.rank.store),
        "sparkbuild.by": "ann@desk, process 7",
        "sparkbuild.rank": "1",
        "sparkbuild.world_size": "2",
        "sparkbuild.key": order.goal.key.digest,
        "sparkbuild.lock": "demo@1234",
        "sparkbuild.model_id": "smollm2",
        "sparkbuild.port": "0",
    }
    assert parts == {name: value for name, value in order.goal.key.parts.items() if name != "env"}
    assert parts["secrets"] == ["HF_TOKEN"]
    assert SECRET not in str(labels(order))
    assert "of-the-environment" not in str(labels(order))
    assert labels(lanes.order(0))["sparkbuild.port"] == "8000"


def test_the_label_that_makes_a_container_ours() -> None:
    assert lanelabels.RECIPE in labels(lanes.order())


def test_binds() -> None:
    mounts = (Mount("/srv/models", "/models"),)
    order = lanes.order(0, {"HF_TOKEN": SECRET, "KEY": "12345678"}, mounts=mounts)
    assert binds(order) == (
        Bind(lanes.WEIGHTS, lanes.WEIGHTS, read_only=True),
        Bind("/srv/models", "/models", read_only=True),
        Bind(f"{order.secrets}/HF_TOKEN", "/run/secrets/HF_TOKEN", read_only=True),
        Bind(f"{order.secrets}/KEY", "/run/secrets/KEY", read_only=True),
    )
    assert binds(lanes.order()) == (Bind(lanes.WEIGHTS, lanes.WEIGHTS, read_only=True),)


# the image's entrypoint, the command
DOUBLED: dict[str, tuple[list[str], list[str]]] = {
    "all of it": (["vllm", "serve"], ["vllm", "serve", "/srv/models/x"]),
    "the program": (["vllm"], ["vllm", "serve"]),
    "its end": (["vllm", "serve"], ["serve", "/srv/models/x"]),
    "by another path": (["/usr/local/bin/vllm", "serve"], ["vllm", "serve"]),
    "by another path, the command": (["vllm"], ["/opt/venv/bin/vllm", "serve"]),
    "a module": (["python3", "-m", "sglang.launch_server"], ["python3", "-m", "sglang.launch_server", "--tp", "2"]),
    "an interpreter": (["python3"], ["python3", "serve.py"]),
    "the same interpreter by another name": (["/usr/bin/python3"], ["/opt/venv/bin/python3.12", "serve.py"]),
    "behind a wrapper": (["tini", "--", "vllm"], ["vllm", "serve"]),
    "nothing but the command": (["vllm"], ["vllm"]),
}
PASSES: dict[str, tuple[list[str] | None, list[str]]] = {
    "none": ([], ["vllm", "serve"]),
    "null": (None, ["vllm", "serve"]),
    "NVIDIA's wrapper": (["/opt/nvidia/nvidia_entrypoint.sh"], ["vllm", "serve"]),
    "tini": (["/usr/bin/tini", "--"], ["vllm", "serve"]),
    "arguments alone": (["vllm", "serve"], ["/srv/models/x", "--port", "8000"]),
    "a program with a like name": (["pythonic"], ["python3", "serve.py"]),
    "the middle of it": (["vllm", "serve"], ["vllm"]),
    "folders": (["/opt/a/"], ["/opt/b/"]),
}


@pytest.mark.parametrize("name", DOUBLED)
def test_an_entrypoint_that_doubles_the_command(name: str) -> None:
    baked, argv = DOUBLED[name]
    with pytest.raises(ConfigError) as raised:
        entrypoint(lanes.spec(), baked, argv)
    assert raised.value.where == "recipes/demo/recipe.toml"
    assert json.dumps(baked) in raised.value.found
    assert json.dumps(argv[:4]) in raised.value.found
    assert "entrypoint = []" in raised.value.next


@pytest.mark.parametrize("name", PASSES)
def test_an_entrypoint_that_is_kept(name: str) -> None:
    baked, argv = PASSES[name]
    assert entrypoint(lanes.spec(), baked or (), argv) is None
    assert entrypoint(lanes.spec(), (), argv) is None


@pytest.mark.parametrize("wanted", [(), ("/bin/wrap", "--")])
def test_an_entrypoint_of_the_recipe(wanted: tuple[str, ...]) -> None:
    spec = lanes.spec(docker=Docker(entrypoint=wanted))
    assert entrypoint(spec, ["vllm"], ["vllm", "serve"]) == list(wanted)
