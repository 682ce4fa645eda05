"""A docker client for a node: docker-py's API calls, carried by the node's connection. No docker program, no shell,
and nothing of this user's docker configuration or environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import docker
import requests
import urllib3
from docker.auth import AuthConfig
from docker.constants import DEFAULT_TIMEOUT_SECONDS, MINIMUM_DOCKER_API_VERSION
from docker.utils.proxy import ProxyConfig
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.rpc.connection import Connection

_KEPT = 2  # idle connections, each an agent on the node
_BASE = "http://docker"


class _Connection(HTTPConnection):
    """An HTTP connection whose bytes go over the node's own."""

    way: Connection

    def connect(self) -> None:
        self.sock = self.way.dial()
        self.sock.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)


class _Adapter(HTTPAdapter):
    """Gives out connections to one node's engine, whatever the URL says."""

    def __init__(self, way: Connection) -> None:
        connection = type("_Connection", (_Connection,), {"way": way})
        self._pool = urllib3.HTTPConnectionPool("docker", maxsize=_KEPT)
        self._pool.ConnectionCls = connection
        super().__init__()

    def get_connection_with_tls_context(self, *_args: Any, **_more: Any) -> urllib3.HTTPConnectionPool:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, _proxies: Mapping[str, str] | None) -> str:
        return request.path_url

    def close(self) -> None:
        self._pool.close()


class _Api(docker.APIClient):
    """docker-py's low-level client, made without its look at ~/.docker/config.json, DOCKER_HOST and proxies."""

    def __init__(self, way: Connection, socket: str) -> None:
        requests.Session.__init__(self)
        self.trust_env = False
        self.base_url = _BASE
        self.timeout = DEFAULT_TIMEOUT_SECONDS
        self.credstore_env = None
        self._general_configs: dict[str, Any] = {}
        self._proxy_configs = ProxyConfig()
        self._auth_configs = AuthConfig({}, credstore_env=None)
        self._custom_adapter = None
        self._way = way
        self._node = way.name
        self._socket = socket
        self.mount(f"{_BASE}/", _Adapter(way))
        self._version = MINIMUM_DOCKER_API_VERSION  # until the engine has said its own
        self._version = str(self.version(api_version=False)["ApiVersion"])

    def lost(self) -> NodeError | None:
        """Why a call broke, when that is because the way to the node did."""
        return self._way.lost()

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        """As requests' own; what breaks on the way is a NodeError."""
        try:
            return super().send(request, **how)
        except requests.exceptions.ReadTimeout as error:
            raise self.lost() or NodeError(
                f"docker on {self._node} does not answer",
                where=f"node {self._node}, {self._socket}",
                found=f"nothing for {self.timeout} s after {request.method} {request.path_url}",
                next=f"journalctl -u docker, on {self._node}",
            ) from error
        except (requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise self.lost() or NodeError(
                f"docker on {self._node} hung up",
                where=f"node {self._node}, {self._socket}",
                found=_plain(error),
                next=f"look whether dockerd runs on {self._node}, then run again",
            ) from error


def _plain(error: BaseException) -> str:
    """What happened, without the exceptions that it came wrapped in."""
    while True:
        inner = next((one for one in reversed(error.args) if isinstance(one, BaseException)), None)
        if inner is None:
            return str(getattr(error, "strerror", None) or error)
        error = inner


def client(way: Connection, socket: str) -> docker.DockerClient:
    """A client of the engine that `way` leads to; `socket` is where it is, for messages. It asks the engine for its
    version: NodeError when there is no engine, or it may not be used.
    """
    made = docker.DockerClient.__new__(docker.DockerClient)
    made.api = _Api(way, socket)
    return made
