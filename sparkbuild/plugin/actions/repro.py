"""Task `repro:NAME`: build an image twice without cache, and name the layers and files that differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparkbuild.agent.wire.images import LayerDifference
from sparkbuild.app.catalog import Catalog
from sparkbuild.app.opened import Opened
from sparkbuild.core.errors import NodeError, NotMadeError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, UNKNOWN, Verdict
from sparkbuild.core.units import count
from sparkbuild.images.building import Builder
from sparkbuild.images.dockerfile import DockerfileSpec
from sparkbuild.plugin.adapters import docs
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.factory import DoitTask

_SHOWN = 20  # files of one layer in the message; the log has more
_NAMED = 8  # folders in a line


class Reproduce(_Action):
    """Two builds of the same inputs, compared. What the image is built from must be there: `doit image:NAME` sees to
    that.
    """

    def __init__(self, goal: Goal) -> None:
        super().__init__()
        self.goal = goal

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        goal = self.goal
        run = here.work.run(self.task.name)
        with here.work.pools.hold(goal.pools):
            for need in goal.needs:
                verdict = here.observed.look_again(need)
                if verdict.state == UNKNOWN:
                    raise _unasked(need, verdict, self.task.name)
                if verdict.state != OK:
                    raise NotMadeError(
                        f"{need.uri} is needed for that, and is not there",
                        found="\n".join(reason.text for reason in verdict.reasons),
                        next=f"doit {need.task} {self.task.name}",
                    )
            found = Builder(str(here.root), here.nodes).repro(goal.node, goal.spec, goal.key, run)
        layers, different = found["layers"], found["different"]
        if different:
            run.note(told(different, 10**6))
        if different and all(layer["count"] == layer["dated"] for layer in different):
            self.result = dated(different, layers)
        elif different:
            raise NotMadeError(
                f"two builds of {goal.spec.name} differ in {len(different)} of {layers} layers",
                where=here.catalog.relative(log),
                found=told(different, _SHOWN),
                next="`touch -d @$SOURCE_DATE_EPOCH` mends times; caches and byte-code are best not written",
            )
        else:
            self.result = f"two builds are the same, {count(layers, 'layer')}"


def _unasked(need: Goal, verdict: Verdict, task: str) -> SparkbuildError:
    """Nobody can say whether what is needed is there, which is not to say that it is missing."""
    fact = verdict.fact if isinstance(verdict.fact, dict) else {}
    return NodeError(
        f"nobody can say whether {need.uri} is there, which is needed for that",
        where=f"node {need.node}",
        found="\n".join(dict.fromkeys(reason.text for reason in verdict.reasons)),
        next=f"{fact['next']}, then doit {task}" if fact.get("next") else f"doit health, then doit {task}",
    )


def dated(different: list[LayerDifference], layers: int) -> str:
    """The verdict on builds that differ in nothing but times of folders, in one line."""
    paths = list(dict.fromkeys(row["path"] for layer in different for row in layer["files"]))
    named = ", ".join(paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
    where = f"in {len(different)} of {layers} layers"
    return (
        f"two builds have the same files; only times of folders differ, {where}: {named}."
        f" This BuildKit does not rewrite them (docs/images.md says how a Dockerfile avoids that)"
    )


def told(different: list[LayerDifference], most: int) -> str:
    """Layers and files that differ, a line each; at most so many files of a layer."""
    lines = []
    for layer in different:
        lines.append(f"layer {layer['number']}: {count(layer['count'], 'file')}")
        lines += [f"  {row['path']}: {', '.join(row['how'])}" for row in layer["files"][:most]]
        if layer["count"] > len(layer["files"][:most]):
            lines.append(f"  and {layer['count'] - len(layer['files'][:most])} more")
    return "\n".join(lines)


def repro_tasks(catalog: Catalog) -> Iterator[DoitTask]:
    """The task of each image that is built."""
    for goal in catalog.goals.by_task.values():
        if goal.uri.scheme == "archive" and isinstance(goal.spec, DockerfileSpec):
            name = goal.spec.name
            yield {"basename": "repro", "name": name, "doc": docs.repro(name), "actions": [Reproduce(goal)]}
