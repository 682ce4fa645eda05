"""The docker program of this node, as far as it can build with BuildKit: the API alone cannot, and a build's progress
and secrets are things that only the program sends.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkbuild.agent.docker.engine import SOCKET
from sparkbuild.agent.wire.protocol import config_error

_PLACES = ("/usr/bin", "/usr/local/bin", "/snap/bin")  # a login without a shell may have a short PATH
_LAST_WITH_BUILDKIT = 22  # from 23 on, BuildKit is in the plugin buildx, which Debian's 20.10 does without
_UNSET = ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "BUILDX_BUILDER", "BUILDKIT_HOST")


@dataclass(frozen=True)
class Client:
    """A docker program. `buildx`: through that plugin; else the program's own BuildKit."""

    path: str
    buildx: bool
    version: str
    socket: str = SOCKET

    def __str__(self) -> str:
        return f"{self.path} buildx" if self.buildx else f"{self.path}, {self.version}"

    @property
    def env(self) -> dict[str, str]:
        """Its environment: this engine and no other, plain output, nothing that adds attestations."""
        kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
        return {
            **kept,
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_BUILDKIT": "1",
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "DOCKER_CLI_HINTS": "false",
            "LC_ALL": "C",
        }

    def build_command(
        self,
        tag: str,
        *,
        network: bool = False,
        args: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        cache: bool = True,
    ) -> list[str]:
        """The argv of a build whose context comes on stdin. `secrets` are paths by id: their values are in no argv."""
        argv = [self.path]
        if self.buildx:  # the engine's own builder: any other knows no local images, and would load slowly
            argv += ["buildx", "build", "--builder", "default", "--load", "--provenance=false", "--sbom=false"]
        else:
            argv += ["build"]
        argv += ["--progress=plain", "--network", "default" if network else "none", "--tag", tag]
        if not self.buildx:
            argv += ["--pull=false"]
        if not cache:
            argv += ["--no-cache"]
        for name, value in (args or {}).items():
            argv += ["--build-arg", f"{name}={value}"]
        for name, path in (secrets or {}).items():
            argv += ["--secret", f"id={name},src={path}"]
        for name, value in (labels or {}).items():
            argv += ["--label", f"{name}={value}"]
        return [*argv, "-"]

    def run(self, argv: Sequence[str], timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; its exit code is for the caller to look at."""
        return subprocess.run(  # noqa: S603 - argv is a list, no shell
            [self.path, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env=self.env,
        )


def find(socket: str) -> Client:
    """The first docker program of this node that can build with BuildKit. AgentError (config) when none can."""
    said = []
    for path in _programs():
        client = Client(path, buildx=True, version="", socket=socket or SOCKET)
        if client.run(["buildx", "version"]).returncode == 0:
            return client
        told = client.run(["--version"]).stdout.strip()
        major = re.match(r"Docker version (\d+)\.", told)
        if major and 18 < int(major[1]) <= _LAST_WITH_BUILDKIT:
            return Client(path, buildx=False, version=told, socket=socket or SOCKET)
        said.append(f"{path}: {told.partition(',')[0] or 'does not say its version'}, without buildx")
    raise config_error(
        "docker on this node cannot build with BuildKit" if said else "there is no docker program on this node",
        found="; ".join(said) or "none on PATH",
        wanted="docker with the plugin buildx, or docker 19 to 22",
        next="install docker-buildx-plugin (of Docker) or docker-buildx (of Debian), or set another build_node",
    )


def _programs() -> Iterator[str]:
    seen = set()
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), *_PLACES]:
        path = os.path.join(folder, "docker")
        if folder and os.access(path, os.X_OK) and os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path
