"""What says that a server was not reached, and what to do about that."""

from __future__ import annotations

OFFLINE = "if this node has no internet: offline = true in its table of config.toml; else look at its proxy and index"
_UNREACHED = (
    "NewConnectionError",
    "NameResolutionError",
    "name resolution",
    "Name or service not known",
    "No address associated with hostname",
    "Network is unreachable",
    "No route to host",
    "Connection refused",
    "timed out",
)


def is_unreached(text: str) -> bool:
    """Whether it says that a server or its name was not reached."""
    return any(sign in text for sign in _UNREACHED)
