"""Images of kind `venv`: a Python environment made of wheels that are locked by hash."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from sparkbuild.agent.wire.images import VENV, VENV_IMAGE, VenvAbsent, VenvAsk, VenvFact, VenvLookAsk
from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.nodes.unreached import Unreached, unreached

# Raise it when the agent builds the same inputs into something else: every image is then built anew.
BUILDER = 1


class VenvSpec(msgspec.Struct, frozen=True):
    """What goes into the environment. Paths are relative to the workspace; `python` is the least version."""

    name: str
    lock: str
    requirements: str
    files: tuple[str, ...]
    imports: tuple[str, ...]
    python: str


def image_goal(node: str, spec: VenvSpec, inputs: tuple[Input, ...], *, suffix: str = "") -> Goal:
    """The goal of having the image on a node. `suffix` tells the tasks of several nodes apart."""
    hashes = {item.path: item.sha256 for item in inputs}
    parts: dict[str, object] = {"kind": "venv", "requirements": hashes[spec.requirements]}
    for path in spec.files:
        parts[f"file {os.path.basename(path)}"] = hashes[path]
    parts |= {"imports": list(spec.imports), "python": f">={spec.python}", "builder": BUILDER}
    return Goal(
        task=f"image:{spec.name}{suffix}",
        uri=Uri("image", node, spec.name),
        key=Key(parts),
        doc=f"Python environment {spec.name} from locks/{spec.lock}.source.lock",
        spec=spec,
        inputs=inputs,
        pools=("build",),
    )


def folder_in_store(goal: Goal) -> str:
    """Where the image lies, relative to the store of its node."""
    return os.path.join("images", goal.spec.name, goal.key.short)


class VenvKind:
    """How images of this kind are looked at and built."""

    scheme: str = VENV_IMAGE

    def __init__(self, root: str, is_offline: Callable[[str], bool] = lambda _node: False) -> None:
        self._root = root
        self._is_offline = is_offline

    def query(self, goal: Goal) -> VenvLookAsk:
        """What the agent needs to look."""
        return {"name": goal.spec.name, "key": goal.key.digest}

    def judge(self, goal: Goal, fact: VenvFact | VenvAbsent | Unreached, last: Made | None) -> Verdict:
        """Built with this key and unchanged since, or why not."""
        if "unreachable" in fact:
            return unreached(goal, fact)
        if fact["present"]:
            return Verdict(
                OK, (), 0, fact, f"Python {fact['python']}, {fact['bytes'] / 1e6:.1f} MB, every file as built"
            )
        size = last.bytes if last else None
        if fact.get("problem"):
            return Verdict(RUN, (Reason("content", str(fact["problem"])),), size, fact)
        other = fact.get("other")
        before = other["parts"] if other else last.parts if last else None
        reasons = differences(before, goal.key.parts) if before else ()
        if not reasons:
            reasons = (Reason("image", "was built before, is gone" if last else "not built yet"),)
        return Verdict(RUN, reasons, size, fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Build it; returns the bytes of the environment."""
        del verdict
        spec: VenvSpec = goal.spec
        request = VenvAsk(
            name=spec.name,
            key=goal.key.digest,
            parts=goal.key.parts,
            requirements=self._read(spec.requirements),
            files={os.path.basename(path): self._read(path) for path in spec.files},
            imports=list(spec.imports),
            python=spec.python,
            offline=self._is_offline(goal.node),
        )
        return run.call(goal.node, VENV, request)["bytes"]

    def _read(self, path: str) -> str:
        with open(os.path.join(self._root, path), encoding="utf-8") as file:
            return file.read()
