"""A small, healthy workspace to break in one place at a time."""

from __future__ import annotations

import hashlib
from pathlib import Path

FORMAT = "format=local-inference-source-lock/v1\n"
REQUIREMENTS = "engine==1.0 --hash=sha256:" + "a" * 64 + "\n"
IMAGE = 'kind = "venv"\nlock = "eng"\n'
RECIPE = """\
cluster = "local"
image = "eng"
model_id = "m"

[serve]
command = ["{{ image.python }}", "-m", "engine"]
port = 8000

[[staging]]
id = "weights"
kind = "files"
src = "artifact:eng/weights"
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def lock_text(requirements: str = REQUIREMENTS) -> str:
    return (
        f"{FORMAT}input.images/eng/requirements.lock.sha256={digest(requirements)}\n"
        f"weights.artifact.url=https://example.org/model.gguf\nweights.artifact.sha256={'b' * 64}\n"
    )


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def healthy(root: Path) -> Path:
    put(root, "locks/eng.source.lock", lock_text())
    put(root, "images/eng/requirements.lock", REQUIREMENTS)
    put(root, "images/eng/image.toml", IMAGE)
    put(root, "recipes/demo/recipe.toml", RECIPE)
    put(root, "recipes/other/recipe.toml", RECIPE)
    return root
