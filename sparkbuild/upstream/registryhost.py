"""Where registries of images are."""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT = "registry-1.docker.io"  # what a name without a host means, to docker as to us
_HUB = {"", "docker.io", "index.docker.io"}


def host_of(name: str) -> str:
    """The host of a registry as images name it, "" for docker's own."""
    return DEFAULT if name in _HUB else name


def base_of(host: str) -> str:
    """Where a registry is: https, but for one on this machine, as docker does. ValueError for what is no host."""
    return f"{'http' if is_here(urlsplit(f'//{host}').hostname or '') else 'https'}://{host}"


def is_here(name: str) -> bool:
    """Whether a host, without a port, is this machine."""
    return name == "localhost" or name.startswith("127.")
