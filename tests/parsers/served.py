"""A server of one answer: whatever bytes a test wants, to everybody who connects, and then it hangs up."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def tcp(answer: bytes) -> Iterator[int]:
    """On this machine; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server, _serving(server, answer):
        yield server.getsockname()[1]


@contextlib.contextmanager
def unix(path: str, answer: bytes) -> Iterator[str]:
    """On a socket in the file system."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(16)
        with _serving(server, answer):
            yield path


@contextlib.contextmanager
def _serving(server: socket.socket, answer: bytes) -> Iterator[None]:
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.settimeout(2)
                    client.recv(65536)
                    client.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
