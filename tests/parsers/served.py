"""A server that answers with whatever bytes a test wants, to everybody who connects, and then hangs up."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

Answer = bytes | Callable[[bytes], bytes]  # to every request, or by the request


@contextlib.contextmanager
def tcp(answer: Answer) -> Iterator[int]:
    """On this machine; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server, _serving(server, answer):
        yield server.getsockname()[1]


@contextlib.contextmanager
def unix(path: str, answer: Answer, *, greets: bool = False) -> Iterator[str]:
    """On a socket in the file system; `greets`: it speaks without being asked."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(16)
        with _serving(server, answer, greets=greets):
            yield path


@contextlib.contextmanager
def _serving(server: socket.socket, answer: Answer, *, greets: bool = False) -> Iterator[None]:
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.settimeout(2)
                    asked = b"" if greets else client.recv(65536)
                    client.sendall(answer if isinstance(answer, bytes) else answer(asked))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
