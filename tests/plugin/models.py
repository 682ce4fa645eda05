"""A workspace with recipes that stage small folders on this machine. None of them is served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from sparkbuild.agent.ledger import index
from tests.engine import ROOT
from tests.workspace_tool import Tool, bare

MIB = 1 << 20
_RECIPE = """\
cluster = "local"
image = "llamacpp"
model_id = "m"
protect = {protect}

[serve]
port = 8000
command = ["x"]
"""
_BLOCK = """
[[staging]]
id = "{id}"
kind = "files"
src = "{src}"
dst = "{dst}"
min_free = {min_free}
"""


class Models(Tool):
    """doit in that workspace. Block `data` of recipe NAME stages `source/NAME` into `disk/NAME`."""

    def __init__(self, root: Path, disk: Path | None = None) -> None:
        bare(root)
        super().__init__(root)
        for folder in ("images/llamacpp", "locks"):
            shutil.copytree(ROOT / folder, root / folder)
        self.store, self.disk = root / ".sparkbuild/node", disk or root / "disk"

    def recipe(self, name: str, sizes: dict[str, int], *, protect: bool = False, min_free: int = 0) -> None:
        """Write a recipe, and its source with files of so many random bytes."""
        folder = self.root / "recipes" / name
        folder.mkdir(parents=True, exist_ok=True)
        source = self.source(name)
        source.mkdir(parents=True, exist_ok=True)
        for file, size in sizes.items():
            (source / file).write_bytes(os.urandom(size))
        block = _BLOCK.format(id="data", src=source, dst=self.folder(name), min_free=min_free)
        (folder / "recipe.toml").write_text(_RECIPE.format(protect=str(protect).lower()) + block)

    def drop(self, name: str) -> None:
        """Remove a recipe; what it staged stays."""
        shutil.rmtree(self.root / "recipes" / name)

    def source(self, name: str) -> Path:
        """Where a recipe's data comes from."""
        return self.root / "source" / name

    def folder(self, name: str) -> Path:
        """Where a recipe's data is staged."""
        return self.disk / name

    def stage(self, *names: str) -> None:
        """Stage recipes, one after the other."""
        for name in names:
            self.ok(f"stage:{name}")

    def entry(self, name: str) -> dict[str, Any]:
        """What the index of the node says of a recipe's folder."""
        found = index.entry(str(self.store), str(self.folder(name)))
        assert found is not None
        return found._asdict()

    def served(self, name: str, at: float) -> None:
        """Have the index say when a lane used it last, and that it was staged long before that."""
        found = index.entry(str(self.store), str(self.folder(name)))
        assert found is not None
        index.write(str(self.store), found._replace(served_at=at, staged_at=1.0))
