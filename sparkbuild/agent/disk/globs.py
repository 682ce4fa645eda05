"""Which paths of a folder are wanted: shell globs over relative paths, as huggingface_hub and `members` read them."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection


def matching(path: str, globs: list[str]) -> str:
    """The first glob that matches a path, "" when none does.

    `*` also matches `/`, so "*.pt" means every .pt at any depth. "page15/" is all in that folder, as is "page15/**";
    "**/x" is x at any depth, at the top too.
    """
    for glob in globs:
        pattern = f"{glob}*" if glob.endswith("/") else glob
        if fnmatch.fnmatchcase(path, pattern) or (pattern.startswith("**/") and fnmatch.fnmatchcase(path, pattern[3:])):
            return glob
    return ""


def unmatched(globs: list[str], paths: Collection[str]) -> list[str]:
    """The globs that match none of these paths."""
    return [glob for glob in globs if not any(matching(path, [glob]) for path in paths)]
