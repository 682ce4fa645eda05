"""Names of goals: `scheme://node/path`, and `scheme://node/path@key` for one exact state of it."""

from __future__ import annotations

import msgspec

SCHEMES = ("artifact", "source", "archive", "image", "staged", "export", "lane", "report")

DOWNLOADS = ("artifact", "source")  # made only for what is made from them; shown only where somebody asks


class Uri(msgspec.Struct, frozen=True, order=True):
    """A goal's name. `node` is a node, or the cluster for goals that span one."""

    scheme: str
    node: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.node}/{self.path}"

    def at(self, short_key: str) -> str:
        """The name of this goal in one exact state, as it stands in doit's targets and file_dep."""
        return f"{self.scheme}://{self.node}/{self.path}@{short_key}"


def is_uri(text: str) -> bool:
    """True for `scheme://...` of a scheme we know; file paths never match."""
    scheme, sep, _ = text.partition("://")
    return bool(sep) and scheme in SCHEMES
