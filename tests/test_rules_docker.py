"""Rules of asking docker, held over the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWNERS = {
    # docker may have an image and be unable to tell its layers: who asks must get [], and not an error
    r"RootFS": {f"sparkbuild/agent/docker/{name}.py" for name in ("answers", "engine", "shapes")},
    # a container inherits its image's labels: whose it is, is asked in one place
    r"sparkbuild\.recipe": {"sparkbuild/agent/wire/lanelabels.py"},
    # what the agent and the operator's side both write or read is spelt once
    r'"sparkbuild\.(launch|store|by|port|key|trial)"': {"sparkbuild/agent/wire/lanelabels.py"},
    r'"running", "paused"': {"sparkbuild/agent/wire/lanelabels.py"},
}


def test_what_docker_says_in_traps_is_read_in_one_place() -> None:
    wrong = []
    for path in sorted((ROOT / "sparkbuild").rglob("*.py")):
        shown = str(path.relative_to(ROOT))
        text = path.read_text()
        wrong += [
            f"{shown}: {name}" for name, owners in OWNERS.items() if re.search(name, text) and shown not in owners
        ]
    assert not wrong, "\n".join(wrong)
