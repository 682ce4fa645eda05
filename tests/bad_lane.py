"""A workspace whose recipe serves `bad_engine.py`: a process lane of this machine, its image without a package."""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

from tests import bad_engine
from tests.engine import free_port
from tests.workspace_tool import REPOSITORY, Tool, bare

RECIPE = "bad"
TASK = f"serve:{RECIPE}"
_IMAGE = (
    'kind = "venv"\nlock = "none"\nrequirements = "requirements.lock"\npython = "3.10"\nfiles = ["bad_engine.py"]\n'
)
_REQUIREMENTS = "# none\n"
_GATE = '[[gates]]\nkind = "smoke"\nid = "sum"\nprompt = "What is 2 + 2?"\nexpect = "4"\ntimeout = 5.0\n'


class BadLane(Tool):
    """doit in that workspace."""

    def __init__(self, root: Path) -> None:
        bare(root)
        super().__init__(root)
        self.port = free_port()
        self.store = root / ".sparkbuild/node"
        image = root / "images/none"
        image.mkdir(parents=True)
        (image / "image.toml").write_text(_IMAGE)
        (image / "requirements.lock").write_text(_REQUIREMENTS)
        shutil.copy(REPOSITORY / "tests/bad_engine.py", image)
        digest = hashlib.sha256(_REQUIREMENTS.encode()).hexdigest()
        (root / "locks").mkdir()
        (root / "locks/none.source.lock").write_text(
            "format=local-inference-source-lock/v1\nrelease.name=none\nrelease.version=1\n"
            f"input.images/none/requirements.lock.sha256={digest}\n"
        )
        self.recipe()

    @property
    def url(self) -> str:
        """Where the engine listens."""
        return f"http://127.0.0.1:{self.port}"

    def recipe(self, *options: str, host: str = "127.0.0.1", ready_timeout: float = 30.0, more: str = "") -> None:
        """Write the recipe. `options` go to the program; `more` into [serve]."""
        words = ["{{ image.python }}", "{{ image.files }}/bad_engine.py", "--host", host, "--port", "{{ port }}"]
        path = self.root / "recipes" / RECIPE / "recipe.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'cluster = "local"\nimage = "none"\nmodel_id = "{bad_engine.MODEL_ID}"\n\n[serve]\n'
            f"command = {json.dumps([*words, *options])}\nport = {self.port}\nready_timeout = {ready_timeout}\n"
            f"stop_grace = 2.0\n{more}\n\n{_GATE}"
        )

    def become(self, mode: str) -> None:
        """Have the engine answer so from here on."""
        bad_engine.become(self.url, mode)

    def chats(self) -> int:
        """How many chats the engine was asked for."""
        with urllib.request.urlopen(f"{self.url}/chats", timeout=10) as answer:
            return int(json.load(answer))

    def row(self) -> dict[str, Any]:
        """Its row of `doit status --json`."""
        (row,) = json.loads(self.ok("status", "--json").out)["lanes"]
        return dict(row)

    def clean_up(self) -> None:
        """End what was started."""
        self(f"stop:{RECIPE}", timeout=60)
        shutil.rmtree(self.root, ignore_errors=True)
