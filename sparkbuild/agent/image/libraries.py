"""System libraries that a module wants and this machine does not have: named with the package that brings them."""

from __future__ import annotations

import re

_MISSING = re.compile(r"([A-Za-z0-9_+.-]+\.so(?:\.[0-9]+)*): cannot open shared object file")
_PACKAGES = {  # of Debian and Ubuntu, where they have the same name in both
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
    "libatomic.so.1": "libatomic1",
    "libnuma.so.1": "libnuma1",
    "libopenblas.so.0": "libopenblas0",
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libGL.so.1": "libgl1",
    "libsndfile.so.1": "libsndfile1",
    "libxcb.so.1": "libxcb1",
    "libffi.so.8": "libffi8",
    "libssl.so.3": "libssl3",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
    "libtbb.so.12": "libtbb12",
    "libuv.so.1": "libuv1",
}
_NVIDIA = re.compile(r"lib(?:cuda|nvidia-[a-z]+)\.so")
LINES = 12  # of a traceback: the last ones say what was wrong


def advice(said: str) -> str:
    """The next command after a program said that it lacks a library; "" when it said nothing of the kind."""
    missing = _MISSING.search(said)
    if missing is None:
        return ""
    name = missing.group(1)
    if _NVIDIA.match(name):
        return f"{name} comes with NVIDIA's driver: install that on this node, or name another build node"
    package = _PACKAGES.get(name)
    if package:
        return f"on that node, Debian and Ubuntu: sudo apt-get install {package}, which brings {name}"
    return f"on that node: find and install the package that brings {name}, on Debian: apt-file search {name}"


def last_lines(said: str) -> str:
    """The end of what a program said, in whole lines."""
    return "\n".join(line[-400:] for line in said.strip().splitlines()[-LINES:])
