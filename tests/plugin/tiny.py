"""A workspace with one recipe, r0, whose image is nothing and whose engine is never started: what is staged counts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.engine import free_port
from tests.workspace_tool import Tool, bare

PIN = f"input.images/tiny/requirements.lock.sha256={hashlib.sha256().hexdigest()}"
RECIPE = """\
cluster = "local"
image = "tiny"
model_id = "m0"

[serve]
port = {port}
command = ["{{{{ image.python }}}}", "{{{{ image.files }}}}/engine.py"]
"""


def tiny(root: Path, staging: str) -> Tool:
    """`staging` is the text of its blocks."""
    tool = bare(root)
    image, recipe = root / "images/tiny", root / "recipes/r0"
    for folder in (image, recipe, root / "locks"):
        folder.mkdir(parents=True)
    for name in ("requirements.lock", "engine.py"):
        (image / name).touch()
    (image / "image.toml").write_text('kind = "venv"\nlock = "data"\nfiles = ["engine.py"]\n')
    (root / "locks/data.source.lock").write_text(f"format=local-inference-source-lock/v1\n{PIN}\n")
    (recipe / "recipe.toml").write_text(RECIPE.format(port=free_port()) + staging)
    return tool
