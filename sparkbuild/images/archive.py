"""How docker images are assembled: on this machine, from locked files, and checked by the sha256 in the receipt."""

from __future__ import annotations

import base64
import os
from typing import Any

from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.images.docker import FILES, DockerSpec, reference


class ArchiveKind:
    """How assembled images are looked at and made."""

    scheme = "archive"

    def __init__(self, root: str) -> None:
        self._root = root

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look."""
        return {"name": goal.spec.name, "key": goal.key.digest}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """Assembled with this key and unchanged since, or why not."""
        if "unreachable" in fact:
            return Verdict(UNKNOWN, (Reason("node", f"{goal.node} does not answer: {fact['unreachable']}"),), None)
        if fact["present"]:
            text = f"{len(fact['layers'])} layers, {fact['bytes'] / 1e6:.1f} MB"
            return Verdict(OK, (), 0, fact, text)
        size = last.bytes if last else None
        if fact.get("problem"):
            return Verdict(RUN, (Reason("content", str(fact["problem"])),), size, fact)
        before = (fact.get("other") or {}).get("parts") or (last.parts if last else None)
        reasons = differences(before, goal.key.parts) if before else ()
        if not reasons:
            reasons = (Reason("image", "was assembled before, is gone" if last else "not assembled yet"),)
        return Verdict(RUN, reasons, size, fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Assemble it; returns the bytes of the archive."""
        del verdict
        spec: DockerSpec = goal.spec
        request = {
            "name": spec.name,
            "reference": reference(spec.name, goal.key),
            "key": goal.key.digest,
            "parts": goal.key.parts,
            "lock": spec.lock,
            "platform": spec.platform,
            "python": spec.python,
            "debs": [{"sha256": deb.sha256, "filename": deb.filename} for deb in spec.debs],
            "requirements": self._read(spec.requirements).decode() if spec.requirements else "",
            "folder": FILES,
            "files": {os.path.basename(path): base64.b64encode(self._read(path)).decode() for path in spec.files},
            "env": dict(spec.env),
            "entrypoint": list(spec.entrypoint),
            "command": list(spec.command),
        }
        return int(run.call(goal.node, "assemble", request)["bytes"])

    def _read(self, path: str) -> bytes:
        with open(os.path.join(self._root, path), "rb") as file:
            return file.read()
