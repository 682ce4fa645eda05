"""Images of kind `docker`: what goes into one, its key, its names, and its two goals: assembled, and on a node. And
what is said of a docker that cannot be asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.nodes.unreached import unreached
from sparkbuild.upstream.artifacts import ArtifactSpec

# Raise it when the agent makes something else of the same inputs: every image is then assembled anew.
BUILDER = 1
FILES = "/opt/files"  # where an image's files lie inside it


class DockerSpec(msgspec.Struct, frozen=True):
    """What goes into the image. Paths are relative to the workspace; `requirements` is "" for none; `lock` is
    `name@sha256`; `debs` in the order of image.toml.
    """

    name: str
    lock: str
    debs: tuple[ArtifactSpec, ...]
    requirements: str
    python: str
    files: tuple[str, ...]
    env: dict[str, str]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    platform: str

    @property
    def architecture(self) -> str:
        """As docker names it: amd64, arm64."""
        return self.platform.partition("/")[2]


def key_of(spec: DockerSpec, inputs: tuple[Input, ...]) -> Key:
    """The key of an image. The lock as a whole is not part of it: only what the image takes from it."""
    hashes = {item.path: item.sha256 for item in inputs}
    parts: dict[str, object] = {"kind": "docker", "platform": spec.platform, "builder": BUILDER}
    for deb in spec.debs:
        parts[f"deb {deb.filename.partition('_')[0]}"] = deb.sha256
    if spec.requirements:
        parts |= {"requirements": hashes[spec.requirements], "python": spec.python}
    for path in spec.files:
        parts[f"file {os.path.basename(path)}"] = hashes[path]
    parts |= {"env": dict(spec.env), "entrypoint": list(spec.entrypoint), "command": list(spec.command)}
    return Key(parts)


def archive_goal(node: str, spec: DockerSpec, inputs: tuple[Input, ...], debs: tuple[Goal, ...]) -> Goal:
    """The goal of having the image assembled in the store of a node. `debs` fetch its packages there."""
    return Goal(
        task=f"image:{spec.name}",
        uri=Uri("archive", node, spec.name),
        key=key_of(spec, inputs),
        doc=f"docker image {spec.name} from locks/{spec.lock.partition('@')[0]}.source.lock",
        spec=spec,
        needs=debs,
        inputs=inputs,
        pools=("build",),
        transient=True,
    )


def sync_goal(node: str, archive: Goal) -> Goal:
    """The goal of having an assembled image in a node's docker."""
    name = archive.spec.name
    return Goal(
        task=f"sync:{name}:{node}",
        uri=Uri("image", node, name),
        key=archive.key,
        doc=f"docker image {name} on {node}",
        spec=archive.spec,
        needs=(archive,),
        pools=(node,),  # docker takes two loads at once badly, and what runs there would be disturbed
    )


def reference(name: str, key: Key) -> str:
    """The name of an image in docker: another key is another name, so no container is started from the wrong one."""
    return f"sparkbuild/{name}:{key.short}"


def python_in(spec: DockerSpec) -> str:
    """The Python inside an image, for `{{ image.python }}`."""
    return f"/usr/bin/python{spec.python}"


def archive_in_store(name: str, key: Key) -> str:
    """The folder of an assembled image, relative to the store of its node: its receipt and its config."""
    return os.path.join("archives", name, key.short)


def unasked(goal: Goal, fact: Mapping[str, object]) -> Verdict | None:
    """Why it cannot be told what a node's docker has, and what to do about it; None when it can. `fact` is of an image,
    or of the older ones.
    """
    if "unreachable" in fact:
        return unreached(goal, fact)
    if "silent" not in fact:
        if goal.uri.scheme != "image" or fact.get("present") or "engine" in fact:
            return None
        text = f"docker on {goal.node} cannot be understood: {fact.get('problem') or 'it says nothing of itself'}"
        return Verdict(UNKNOWN, (Reason("docker", text),), None)
    text = f"docker on {goal.node} cannot be asked: {fact['silent']}"
    text += f" ({fact['next']})" if fact.get("next") else ""
    if goal.transient and goal.uri.scheme == "image":
        text += "; only what is built from it needs it there: `build_node` in the image.toml of that says where"
    return Verdict(UNKNOWN, (Reason("docker", text),), None, fact)
