"""What a launch would fail of, as far as the facts tell it beforehand. Pure: facts in, sentences out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sparkbuild.agent.wire.engine import DockerImage
from sparkbuild.agent.wire.lanelabels import ALIVE, CREATED, KEY, name_of
from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.nodes.machines import same_machine
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch import container, network
from sparkbuild.serving.launch.asked import Checked, NodeSeen
from sparkbuild.serving.launch.render import Launch, Rank
from sparkbuild.serving.ranks import Seen, not_ours, who


def refusals(goal: Goal, seen: tuple[Seen, ...], *, replaces: bool) -> list[str]:
    """Why no launch may take place now, by the facts of the lane alone: a protected lane, a node that serves another
    lane, a container in the way that is not ours, a port that is held. `replaces`: a lane of this recipe runs and would
    be stopped.
    """
    spec: LaneSpec = goal.spec
    reasons = []
    records = [rank.record for rank in seen if rank.record and rank.alive]
    if replaces and records and (spec.protect or any(record.get("protect") for record in records)):
        reasons.append(
            f"lane {spec.recipe} is protected and is not replaced: {who(records[0])}, launched from another state of"
            f" the recipe; doit stop:{spec.recipe}, then doit serve:{spec.recipe}"
        )
    name = name_of(spec.recipe)
    for rank in seen:
        reasons += [f"{rank.node} serves lane {other}: doit stop:{other}" for other in rank.fact.get("others") or ()]
        reasons += not_ours(rank.node, rank.fact.get("foreign"), rank.fact.get("elsewhere"))
        if rank.fact.get("stranger"):
            text = f"a container on {rank.node} that is not ours has the name {name}: {rank.fact['stranger']}"
            reasons.append(f"{text}\n  {container.way_out(rank.node, name)}")
    return reasons + port_taken(goal, seen)


def port_taken(goal: Goal, seen: tuple[Seen, ...]) -> list[str]:
    """Who holds the port, said before anything is built: a program would find out when it is launched, and a container
    would be taken for the one that answers there. What is left of this very lane is removed before.
    """
    head, spec = seen[0], goal.spec
    holder = head.fact.get("port_holder")
    if not holder or any(box["state"] != CREATED for box in head.fact.get("left") or ()):
        return []
    if not holder["pid"]:
        return [f"port {spec.port} on {head.node} is in use by a process of another user"]
    by = f"process {holder['pid']} of {holder['user'] or 'another user'}: {one_line(holder['command'], 200)}"
    lane = holder.get("lane")
    by = f"lane {lane} ({by}): doit stop:{lane}" if lane else f"{by}; stop it, or set another serve.port in the recipe"
    return [f"port {spec.port} on {head.node} is held by {by}"]


def problems(
    goal: Goal,
    launches: tuple[tuple[Rank, Launch], ...],
    nodes: Mapping[str, NodeSeen],
    checks: Mapping[str, Checked],
) -> list[str]:
    """What is missing on the nodes. `nodes` are their own facts, `checks` the answers about what this launch needs."""
    same = same_machine({rank.node: nodes[rank.node] for rank, _ in launches})
    reasons = [f"{node} is the same machine as {first}: one rank each is wanted" for node, first in same.items()]
    for rank, launch in launches:
        node, check = nodes[rank.node], checks[rank.node]
        silent = node.get("unreachable") or check.get("unreachable")
        if isinstance(silent, str):  # a list there are peers that it does not reach
            reasons.append(f"{rank.node} does not answer: {silent}")
            continue
        failed = node.get("problem") or check.get("problem")
        if failed:
            reasons.append(f"{rank.node} could not be looked at: {failed}")
            continue
        reasons += _on_node(goal.spec, rank.node, check)
        reasons += [
            f"{rank.node}: {text}"
            for text in network.problems(launch.env, node.get("interfaces") or (), node.get("hcas") or ())
        ]
        if goal.spec.runtime == "docker":
            reasons += _docker(goal.spec, rank.node, node, launch)
    return reasons


def _on_node(spec: LaneSpec, name: str, check: Checked) -> list[str]:
    reasons = [f"{name}: no {path}, which a mount names" for path in check.get("missing") or ()]
    reasons += [f"{name}: no device {path}" for path in check.get("devices_missing") or ()]
    reasons += [f"{name}: {path} is no device" for path in check.get("not_devices") or ()]
    reasons += [f"{name}: {path}: {problem}" for path, problem in (check.get("unknown") or {}).items()]
    reasons += [
        f"{name} does not reach {away['peer']} on the fabric: {away['problem']}"
        for away in check.get("unreachable") or ()
        if not isinstance(away, str)
    ]
    if check.get("ends_with_login"):
        reasons.append(f"{name}: {check['ends_with_login']}")
    available, own = check.get("memory_available"), check.get("memory_own") or 0
    if spec.min_memory and available is not None and available + own < spec.min_memory:
        held = f" and {_size(own)} held by the lane that it replaces" if own else ""
        reasons.append(
            f"{name}: {_size(available)} of memory available{held}, {_size(spec.min_memory)} wanted (min_memory)"
        )
    return reasons


def _docker(spec: LaneSpec, name: str, node: NodeSeen, launch: Launch) -> list[str]:
    docker = node.get("docker")
    if docker is None or not docker["present"] or docker["problem"]:
        return [f"docker on {name}: {docker['problem'] if docker and docker['problem'] else 'not there'}"]
    reasons = []
    image = _image(spec, node)
    if image and image.get("arch") and docker.get("arch") and _arch(image["arch"]) != _arch(docker["arch"]):
        reasons.append(f"{name} is {_arch(docker['arch'])}, image {spec.image} is for {_arch(image['arch'])}")
    if image:
        reasons += _of_image(spec, name, image, node, launch)
    if spec.docker.gpus and docker.get("gives_gpus") is False:
        reasons.append(
            f"docker on {name} gives no container a GPU (gpus = true): neither the nvidia runtime nor a CDI device of"
            " NVIDIA is there: install nvidia-container-toolkit, nvidia-ctk runtime configure, restart docker"
        )
    if spec.docker.gpus:
        reasons += [
            f"{name}: container {box['name']} ({box['image']}) uses the GPU and is not ours"
            for box in docker.get("containers") or ()
            if box.get("gpu") and not box.get("ours") and box.get("state") in ALIVE
        ]
    return reasons


def _image(spec: LaneSpec, node: NodeSeen) -> DockerImage | None:
    docker = node.get("docker")
    return docker["images"].get(spec.image) if docker and docker.get("images") else None


def _of_image(spec: LaneSpec, name: str, image: DockerImage, node: NodeSeen, launch: Launch) -> list[str]:
    """Why this very image cannot run the launch: its entrypoint doubles the command, its user cannot read a secret."""
    reasons = []
    try:
        container.entrypoint(spec, image.get("entrypoint") or (), launch.argv)
    except ConfigError as error:
        reasons.append(f"{name}: {error.what}: {error.found}; {error.next}")
    if spec.secrets and (reader := _cannot_read(image, node)):
        reasons.append(
            f"{name}: {reader} cannot read the secrets in /run/secrets ({', '.join(spec.secrets)}), which are"
            f" {node.get('user') or 'the login'}'s alone: use an image that starts as root, or leave serve.secrets out"
        )
    return reasons


def _cannot_read(image: DockerImage, node: NodeSeen) -> str:
    """Who of the container cannot read what only the login of the node may, "" when it can or that is not known: a name
    is one of the image, and which number it has stands in the image alone.
    """
    docker = node.get("docker")
    if docker and docker.get("remaps_users"):
        return "root of a container is another user on this node (userns-remap), and"
    user = str(image.get("user") or "").partition(":")[0]
    is_other = user.isdigit() and int(user) not in {0, node.get("uid")}
    return f"user {user} of the image" if is_other else ""


def before_stop(spec: LaneSpec, launches: tuple[tuple[Rank, Launch], ...], nodes: Mapping[str, NodeSeen]) -> list[str]:
    """What is known only once the image is on the nodes, right before the lane that runs is stopped."""
    reasons = []
    for rank, launch in launches if spec.runtime == "docker" else ():
        node = nodes[rank.node]
        image = _image(spec, node)
        reasons += _of_image(spec, rank.node, image, node, launch) if image else []
    return reasons


def consistency(spec: LaneSpec, nodes: Mapping[str, NodeSeen]) -> list[str]:
    """What differs between the ranks and must not, right before the launch: the image by key and layers, the driver."""
    reasons = []
    drivers = {name: str(fact.get("driver") or "") for name, fact in nodes.items()}
    if len(set(drivers.values())) > 1:
        reasons.append(f"GPU drivers differ: {_by_value(drivers)}")
    if spec.runtime != "docker":
        return reasons
    images = {name: _image(spec, fact) for name, fact in nodes.items()}
    gone = [name for name, image in images.items() if not image]
    if gone:
        return [*reasons, f"image {spec.image} is not on {', '.join(gone)}"]
    there = {name: image for name, image in images.items() if image}
    keys = {name: str((image.get("labels") or {}).get(KEY, "none"))[:12] for name, image in there.items()}
    layers = {name: ",".join(image.get("layers") or ()) for name, image in there.items()}
    if len(set(keys.values())) > 1:
        reasons.append(f"image {spec.image} has different keys: {_by_value(keys)}")
    if len(set(layers.values())) > 1:
        shown = {name: _layers(text) for name, text in layers.items()}
        reasons.append(f"image {spec.image} has different layers: {_by_value(shown)}")
    return reasons


def _layers(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{len(text.split(',')) if text else 0} layers ({digest[:12]})"


def _by_value(values: Mapping[str, str]) -> str:
    by: dict[str, list[str]] = {}
    for name, value in values.items():
        by.setdefault(value or "none", []).append(name)
    return "; ".join(f"{value} on {', '.join(names)}" for value, names in by.items())


def _arch(name: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(name, name)


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
