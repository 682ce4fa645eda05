"""Why a node's docker engine cannot be used: what is there, and what to do about it."""

from __future__ import annotations

import errno
import os
import pwd

from sparkbuild.core.errors import NodeError


def unusable(node: str, path: str, number: int, said: str, user: str = "") -> NodeError:
    """The error for a connection to the socket `path` that failed with this errno. `user` is who tried."""
    user = user or _me()
    where = f"node {node}, {path}"
    if number in {errno.EACCES, errno.EPERM}:
        return NodeError(
            f"{user} may not use docker on {node}",
            where=where,
            found=f"permission denied: {user} is not in the group docker",
            next=f"sudo usermod -aG docker {user}, on {node}; then run again",
        )
    if number == errno.ECONNREFUSED:
        return NodeError(
            f"docker does not run on {node}",
            where=where,
            found="the socket is there, and nobody listens: dockerd is down",
            next=f"sudo systemctl start docker, on {node}",
        )
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return NodeError(
            f"there is no docker on {node}",
            where=where,
            found="no such socket: docker is not installed, or was not started since the machine was",
            next=f"install docker on {node}, or start it, or set `docker` in config.toml",
        )
    return NodeError(f"docker on {node} cannot be used", where=where, found=said)


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
