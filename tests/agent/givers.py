"""Nodes that give what is staged on them, as processes, and folders that are being staged as slowly as a test likes."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkbuild.agent.ledger import digest, folder
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.peers.give import GONE
from sparkbuild.agent.peers.offer import mark
from tests.agent.driver import CHUNK, key, start

TOKEN = "t" * 32


class Giver:
    """The verb `give` in a process."""

    def __init__(self, dst: Path, *, expected: bool = False, char: str = "a", shim: str = "") -> None:
        request = {"dst": str(dst), "key": key(char), "token": TOKEN, "listen": ["127.0.0.1"], "expected": expected}
        self.process = start("give", request, shim=shim)
        assert self.process.stdout
        event = json.loads(self.process.stdout.readline())
        self.port = int(event["ports"]["127.0.0.1"])

    @property
    def source(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port}

    def memory(self) -> int:
        """The most it ever took, in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) * 1024

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def peers(*givers: Giver | int) -> dict[str, Any]:
    sources = [{"host": "127.0.0.1", "port": one if isinstance(one, int) else one.port} for one in givers]
    return {"token": TOKEN, "sources": sources}


class Answer:
    """What a giver says to a question; read frame by frame."""

    def __init__(self, port: int, path: str, *, wanted: str = "", start: int = 0, token: str = TOKEN) -> None:
        self._call = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {**({"Wanted": wanted} if wanted else {}), **({"Range": f"bytes={start}-"} if start else {})}
        self._call.request("GET", f"/{token}/{path}", headers=headers)
        self._answer = self._call.getresponse()
        self.status = self._answer.status

    def frame(self) -> bytes | None:
        """The next one; b"" is a beat, None that it does not go on."""
        (length,) = struct.unpack(">I", self._answer.read(4))
        return None if length == GONE else self._answer.read(length)

    def all(self) -> tuple[bytes, int, bool]:
        """(bytes, beats, whether it ended well)."""
        data, beats = bytearray(), 0
        while True:
            try:
                frame = self.frame()
            except struct.error:
                return bytes(data), beats, True
            if frame is None:
                return bytes(data), beats, False
            data += frame
            beats += not frame

    def close(self) -> None:
        self._call.close()


def wanted(content: bytes, identity: dict[str, Any] | None = None, *, known: bool = True) -> str:
    sha256 = hashlib.sha256(content).hexdigest() if known else "-"
    return f"{len(content)} {sha256} {mark(identity or {}) or '-'}"


class Arriving:
    """A file that is being staged: chunks come when the test says so."""

    def __init__(self, dst: Path, name: str, content: bytes, identity: dict[str, Any]) -> None:
        self.dst, self.name, self.content, self.identity = dst, name, content, identity
        self.algorithm = digest.best()
        self._function = digest.function(self.algorithm)
        self.part = Part(str(dst), name, Shape(len(content)), identity, self.algorithm)

    def digest_of(self, index: int) -> bytes:
        assert self._function
        return self._function(bytearray(self.content[index * CHUNK : (index + 1) * CHUNK]))

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Under the lock of the folder; gives what writes chunk by chunk."""
        with folder.locked(str(self.dst), print), self.part.opened() as pages:
            os.ftruncate(pages.fd, len(self.content))

            def write(index: int, data: bytes = b"") -> None:
                data = data or self.content[index * CHUNK : (index + 1) * CHUNK]
                pages.write(memoryview(data), index * CHUNK)
                self.part.note(index, self.digest_of(index))

            yield write

    def finish(self) -> None:
        """It gets its name, as stage does it."""
        chunks = b"".join(self.digest_of(index) for index in range(digest.count(len(self.content))))
        sha256 = hashlib.sha256(self.content).hexdigest()
        record = Record(self.name, len(self.content), sha256, chunks, self.algorithm, self.identity)
        Draft(str(self.dst)).add(record)
        os.rename(self.part.path, self.dst / self.name)
        self.part.remove()


class Liar:
    """A peer that answers every question with these bytes, and every sha256 with theirs."""

    def __init__(self, content: bytes, *, sha256: str = "") -> None:
        self.asked: list[str] = []
        self._content, self._sha256 = content, sha256 or hashlib.sha256(content).hexdigest()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += caller.recv(4096)
            line, *rest = head.decode().splitlines()
            self.asked.append(line.split()[1])
            first = next((int(one[13:-1]) for one in rest if one.startswith("Range: bytes=")), 0)
            body = self._sha256.encode() if "?sha256" in line else self._content[first:]
            caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for at in range(0, len(body), CHUNK):
                piece = body[at : at + CHUNK]
                caller.sendall(struct.pack(">I", len(piece)) + piece)

    def close(self) -> None:
        self._listener.close()
