"""Asking the engine of a lane over HTTP: the one owner on this side. All of an answer has one deadline and a bound.

An engine may hang up, dribble a byte a second, send without end, or be no engine at all. A thread reads, and whoever
asked hangs up on it when the time is over: a timeout for each read would be renewed by every byte.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.interrupt import cancel

MOST = 8 << 20  # bytes of one answer
CONNECT = 10.0  # seconds until the connection stands, at most
_PAUSE = 0.1  # seconds between two looks at the thread

OnLine = Callable[[str], None]


class SilentError(Exception):
    """No whole answer was heard; the text says why, printable and on one line. `foreign`: what answers speaks no HTTP;
    `late`: the time was over.
    """

    def __init__(self, text: str, *, foreign: bool = False, late: bool = False) -> None:
        super().__init__(one_line(text))
        self.foreign = foreign
        self.late = late


class Heard(NamedTuple):
    """A whole answer: its status, its kind (content type), and its body."""

    status: int
    kind: str
    body: bytes

    @property
    def text(self) -> str:
        """What the body says, printable, on one line, bounded."""
        return one_line(self.body[:65536].decode(errors="replace"))

    def json(self) -> Any:
        """The JSON in it; ValueError when there is none, or it is nested deeper than can be read."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("JSON that is nested too deep") from None


def ask(
    base: str,
    path: str,
    *,
    patience: float,
    body: Mapping[str, Any] | None = None,
    on_line: OnLine | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Heard:
    """GET `base` + `path`, or POST `body` as JSON. `patience` in seconds is for all of it, from the connection to the
    last byte. With `on_line`, the lines of an answer with status 200 go to it as they come, and `body` is empty.
    `meanwhile` is called several times a second; what it raises ends the question, and so does a ctrl-C, whoever asks.
    Raises SilentError.
    """
    call = _Call(base, path, body, on_line, patience)
    thread = threading.Thread(target=call.run, daemon=True)
    thread.start()
    end = time.monotonic() + patience
    try:
        while thread.is_alive():
            thread.join(min(_PAUSE, max(0.001, end - time.monotonic())))
            cancel.check()
            meanwhile()
            if thread.is_alive() and time.monotonic() > end:
                raise SilentError(f"{call.state} within {round(patience, 1):g} s", late=True)
    finally:
        call.hang_up()
    if call.heard is None:
        raise call.error or SilentError("nothing was heard")
    return call.heard


class _Call:
    """One question, in the thread that waits for its answer. Proxies are not asked: they are for the internet."""

    def __init__(
        self, base: str, path: str, body: Mapping[str, Any] | None, on_line: OnLine | None, patience: float
    ) -> None:
        place = urlsplit(base)
        self._link = http.client.HTTPConnection(place.hostname or "", place.port or 80, min(CONNECT, patience))
        self._path = place.path.rstrip("/") + path
        self._body = None if body is None else json.dumps(body).encode()
        self._on_line = on_line
        self._socket: socket.socket | None = None
        self._is_over = False
        self.heard: Heard | None = None
        self.error: Exception | None = None
        self.state = "it does not take a connection"

    def run(self) -> None:
        try:
            self.heard = self._ask()
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            hung_up = isinstance(error, ConnectionResetError)  # RemoteDisconnected is one of these
            self.error = SilentError("it hangs up without an answer" if hung_up else _told(error))
        except (http.client.BadStatusLine, http.client.UnknownProtocol) as error:
            is_foreign = not str(error).strip("'\"").startswith("HTTP/")
            text = f"what answers speaks no HTTP: {error}" if is_foreign else "its answer ends early"
            self.error = SilentError(text, foreign=is_foreign)
        except http.client.IncompleteRead:
            self.error = SilentError("its answer ends early")
        except http.client.HTTPException as error:
            self.error = SilentError(f"its answer cannot be read: {type(error).__name__} {error}")
        except OSError as error:
            self.error = SilentError(_told(error))
        except Exception as error:  # noqa: BLE001 - of `on_line`, and of no HTTP at all: for whoever asked
            self.error = error
        finally:
            self._link.close()
            if self._socket is not None:
                self._socket.close()

    def hang_up(self) -> None:
        """End it, whatever it waits for."""
        self._is_over = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> Heard:
        self._link.connect()
        self._socket = self._link.sock
        if self._is_over:
            raise SilentError(self.state, late=True)
        self._socket.settimeout(None)  # whoever asked hangs up
        self.state = "it accepts requests and does not answer them"
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._body is not None:
            headers["Content-Type"] = "application/json"
        self._link.request("GET" if self._body is None else "POST", self._path, self._body, headers)
        with self._link.getresponse() as answer:
            self.state = "its answer does not end"
            kind = answer.headers.get_content_type()
            if self._on_line is None or answer.status != 200:
                return Heard(answer.status, kind, _whole(answer))
            taken = 0
            while line := answer.readline(MOST):
                taken += len(line)
                if taken > MOST:
                    raise SilentError(f"an answer of more than {MOST >> 20} MiB")
                self._on_line(line.decode(errors="replace").rstrip("\r\n"))
            return Heard(answer.status, kind, b"")


def _whole(answer: http.client.HTTPResponse) -> bytes:
    body = bytearray()
    while block := answer.read1(65536):
        body += block
        if len(body) > MOST:
            raise SilentError(f"an answer of more than {MOST >> 20} MiB")
    if answer.length:  # read1 does not say that the end is missing
        raise SilentError("its answer ends early")
    return bytes(body)


def _told(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
