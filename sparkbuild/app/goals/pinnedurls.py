"""The files of the network that recipes pin themselves: by sha256, with every URL of any of them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from sparkbuild.upstream.artifacts import ArtifactSpec, Origin
from sparkbuild.workspace.shapes.stagingschema import FilesStaging
from sparkbuild.workspace.shapes.workspace import Recipe

_UNNAMED = "file"


def pinned_urls(recipes: Mapping[str, Recipe]) -> dict[str, ArtifactSpec]:
    """By sha256, the artifact that all recipes share: its URLs in the order of the recipes and their blocks, each once,
    with the files that say it. In the store it has no name of its own: the same content is one file there, whatever
    each of the URLs that give it calls it.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    for recipe in recipes.values():
        for block in recipe.spec.staging:
            if isinstance(block, FilesStaging) and is_url(block):
                urls = found.setdefault(block.sha256, {})
                urls.setdefault(block.src, {})[f"{recipe.dir}/recipe.toml"] = None
    return {sha256: _spec(sha256, urls) for sha256, urls in found.items()}


def is_url(block: FilesStaging) -> bool:
    """Whether a block is staged from a URL of its own, and not from a folder or an artifact of a lock."""
    return not block.src.startswith(("/", "artifact:"))


def _spec(sha256: str, urls: dict[str, dict[str, None]]) -> ArtifactSpec:
    first, *others = (Origin(url, " and ".join(places)) for url, places in urls.items())
    return ArtifactSpec(_UNNAMED, sha256, "", first.url, first.pinned, tuple(others))
