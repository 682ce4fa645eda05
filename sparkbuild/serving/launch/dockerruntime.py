"""The runtime that starts a container: by the Docker API over the node's connection, no shell, no docker program."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import docker
import requests

from sparkbuild.agent.wire.lanelabels import ALIVE, CREATED, RECIPE, STORE, is_lanes, is_of_another, name_of
from sparkbuild.agent.wire.lanes import NOTE, RECORD, NoteAsk, RecordAsk
from sparkbuild.agent.wire.records import LaneRecord
from sparkbuild.core.errors import EngineDiedError, NodeError, SpaceError, SparkbuildError
from sparkbuild.core.run import Run
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch import container
from sparkbuild.serving.launch.runtime import Order, request_of


def start_container(api: Any, order: Order, run: Run) -> LaneRecord:
    """Create the container, record it, start it; in this order, so that none runs which no record names. Its record."""
    spec: LaneSpec = order.goal.spec
    node = order.rank.node
    with told(node, f"lane {spec.recipe}"):
        make_room(api, spec.recipe, spec.docker.keep, run, store=order.rank.store)
        image = api.inspect_image(spec.image)
        entry = container.entrypoint(spec, image["Config"].get("Entrypoint") or (), order.launch.argv)
        container_id = _create(api, order, entry)
    try:
        record = run.call(node, RECORD, RecordAsk(**request_of(order), container=container_id))["record"]
        with told(node, f"lane {spec.recipe}"):
            api.start(container_id)
            started = str(api.inspect_container(container_id)["State"]["StartedAt"])
        # by this a container that somebody starts again is told from the one that passed its gates
        noted: NoteAsk = {"recipe": spec.recipe, "launch": record["launch"], "set": {"started": started}}
        record = run.call(node, NOTE, noted)["record"]
    except BaseException:
        with contextlib.suppress(Exception):  # the reason is what is raised
            api.remove_container(container_id, force=True)
        raise
    run.note(f"started container {container_id[:12]} on {node}: {' '.join(order.launch.argv)}")
    return record


def _create(api: Any, order: Order, entry: list[str] | None) -> str:
    spec: LaneSpec = order.goal.spec
    mounts = [
        docker.types.Mount(target=bind.target, source=bind.source, type="bind", read_only=bind.read_only)
        for bind in container.binds(order)
    ]
    created = api.create_container(
        spec.image,
        command=list(order.launch.argv),
        name=name_of(spec.recipe),
        environment=dict(order.launch.env),
        labels=container.labels(order),
        entrypoint=entry,
        host_config=api.create_host_config(mounts=mounts, **container.host_config(order)),
    )
    return str(created["Id"])


def make_room(api: Any, recipe: str, keep: int, run: Run, *, store: str) -> None:
    """Free the name for a new container: one of ours that is dead is renamed and kept for its logs, one that was never
    started is removed, and of the dead ones only the `keep` youngest stay. None of another store is removed.
    """
    labelled = api.containers(all=True, filters={"label": [f"{RECIPE}={recipe}"]})
    dead = []
    for entry in sorted(labelled, key=lambda entry: int(entry["Created"]), reverse=True):
        name = str((entry.get("Names") or ["/"])[0]).lstrip("/")  # one that docker is removing may have none
        if not is_lanes(entry["Labels"], _image_labels(api, entry.get("ImageID", "")), name):
            continue  # of an image that somebody made of a lane
        if entry["State"] in ALIVE:
            raise EngineDiedError(f"container {name} of lane {recipe} runs", found=entry["Id"][:12], next="doit status")
        foreign = is_of_another(entry["Labels"].get(STORE, ""), store)
        if entry["State"] == CREATED and not foreign:
            api.remove_container(entry["Id"], force=True)
            run.note(f"removed {name} ({entry['Id'][:12]}), which was never started")
            continue
        dead += [] if foreign else [entry]
        if name == name_of(recipe):
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(entry["Created"])))
            api.rename(entry["Id"], f"{name}-{stamp}-{entry['Id'][:6]}")
    for entry in dead[keep:]:
        api.remove_container(entry["Id"])
        run.note(f"removed the log of an older launch: container {entry['Id'][:12]}")


def _image_labels(api: Any, image: str) -> dict[str, str] | None:
    """The labels of an image; None when docker has it no more."""
    try:
        return api.inspect_image(image)["Config"].get("Labels") or {}
    except (docker.errors.NotFound, docker.errors.NullResource):
        return None


def stop(api: Any, container_id: str, grace: float) -> bool:
    """Stop a container, gently first; True when it had to be killed. One that was never started is removed."""
    try:
        state = api.inspect_container(container_id)["State"]
        if state["Status"] == CREATED:
            api.remove_container(container_id, force=True)
            return False
        began = time.monotonic()
        api.stop(container_id, timeout=max(1, round(grace)))
        return time.monotonic() - began >= max(1, round(grace))
    except docker.errors.NotFound:
        return False


@contextlib.contextmanager
def told(node: str, what: str) -> Iterator[None]:
    """Docker's refusals as errors of this package: what, on which node, in docker's own words."""
    try:
        yield
    except docker.errors.APIError as error:
        words = str(error.explanation or error)
        raise _refused(node, what, words) from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise NodeError(
            f"docker on {node} does not answer", found=str(error), next=f"doit health, then {what}"
        ) from error


def _refused(node: str, what: str, words: str) -> SparkbuildError:
    where = f"node {node}"
    if "no space left" in words.lower() or "disk quota" in words.lower():
        return SpaceError(
            f"{what}: docker's disk is full",
            where=where,
            found=words,
            wanted="room where docker keeps its containers (Docker Root Dir of docker info)",
            next=f"on {node}: docker system df, then make room and run again; nothing of the launch was kept",
        )
    if "is already in use by container" in words:
        match = re.search(r'name "/?([^"]+)"', words)
        return SparkbuildError(
            f"{what}: its container's name is taken by one that is not ours",
            where=where,
            found=words,
            wanted="that name free: a container that is not ours is never touched",
            next=container.way_out(node, match.group(1) if match else "it"),
        )
    return SparkbuildError(
        f"{what}: docker refuses",
        where=where,
        found=words,
        next=f"mend what docker names, and run again; journalctl -u docker on {node} may say more",
    )
