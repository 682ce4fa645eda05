"""The engine that misbehaves does what it is asked to, and goes on to."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from tests.bad_engine import MARKUP, MODES, Bad, running


def first_bytes(engine: Bad, path: str = "/v1/models", wait: float = 0.5) -> bytes:
    """What comes within a moment."""
    with socket.create_connection((engine.host, engine.port), timeout=wait) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        try:
            return connection.recv(4096)
        except TimeoutError:
            return b"(nothing)"


def test_every_mode_can_be_left() -> None:
    with running() as engine:
        for mode in MODES:
            engine.become(mode)
            first_bytes(engine, wait=0.05)
        engine.become("fine")
        assert b"bad-model" in first_bytes(engine)
        assert engine.asked() == len(MODES) + 1


@pytest.mark.parametrize(
    ("mode", "begins"),
    [
        ("hang-up", b""),
        ("silent", b"(nothing)"),
        ("no-http", b"SSH-2.0"),
        ("dribble", b"HTTP/1.1 200"),
        ("markup", b"HTTP/1.1 500"),
        ("guarded", b"HTTP/1.1 401"),
    ],
)
def test_what_comes(mode: str, begins: bytes) -> None:
    with running(mode) as engine:
        assert first_bytes(engine).startswith(begins)


def test_its_words() -> None:
    with running("markup") as engine:
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(f"{engine.base_url}/v1/models", timeout=5)
        assert MARKUP in told.value.read().decode()
