"""One ssh connection: made when first used, host key checked before anything is sent, kept alive, its death noticed."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence

import paramiko

from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.ssh import failures, hostkeys, revoked
from sparkbuild.nodes.ssh.channel import Channel, Ears, Transport, own
from sparkbuild.nodes.ssh.config import Target
from sparkbuild.nodes.ssh.dialing import connected
from sparkbuild.nodes.ssh.hostkeys import HostKey
from sparkbuild.nodes.ssh.login import AUTH_TIMEOUT, log_in
from sparkbuild.nodes.ssh.proxy import ProxySocket

PULSE = 5.0  # seconds between two signs of life
PATIENCE = 30.0  # seconds without any answer until a connection counts as lost: a busy node may be silent for some
_SESSIONS = 8  # at once on a connection: sshd grants 10 (MaxSessions), and hangs up when many more are asked for
_LINES = 24  # connections at once, where sshd grants fewer
_BUSY = 0.3  # seconds until a connection is asked again that refused a session: one that ended may still be counted
_FULL = 30.0  # seconds until a session ends, when all connections are full
_STARTS = (0.3, 1.0)  # waits before a connection is tried again that sshd dropped at once (MaxStartups)

_AT_ONCE = 2.0  # seconds

_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")  # the fastest first
_EXCHANGES = ("curve25519-sha256@libssh.org", "curve25519-sha256")
_KEY_TYPES = ("ssh-ed25519",)
_OF_RSA = ("rsa-sha2-512", "rsa-sha2-256")  # signatures, of one type of key

# Without a handler Python prints what a library says to the terminal; all of it reaches the user in our own words.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Line:
    """One transport and the sessions on it. `opening` is written under the link's lock."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.opening = 0
        self.granted = False  # a session, once
        self.busy = 0.0  # until when it is not asked for another one
        self._sessions: list[paramiko.Channel] = []

    def in_use(self) -> int:
        """How many sessions there are, or will be at once."""
        self._sessions = [channel for channel in self._sessions if not channel.closed]
        return len(self._sessions) + self.opening

    def add(self, channel: paramiko.Channel) -> None:
        """A session was opened."""
        self.granted = True
        self._sessions.append(channel)


class Link:
    """The connection to one server. Any number of threads may use it; it is made anew when it was lost. Only for more
    sessions at once than sshd grants on a connection, a further one is made.
    """

    def __init__(self, target: Target, via: Link | None, own: str) -> None:
        self.target = target
        self._via = via
        self._own = own  # the workspace's known_hosts
        self._making = threading.Lock()
        self._requests = threading.Lock()  # paramiko cannot tell apart the answers to two global requests
        self._lines: list[_Line] = []
        self._most = _SESSIONS  # on one connection; learned where sshd grants fewer
        self._failure: tuple[float, NodeError] | None = None

    # -- using it ------------------------------------------------------------------------------------------------

    def transport(self) -> Transport:
        """The connection, made now if there is none. NodeError with what to do when it cannot be made."""
        began = time.monotonic()
        with self._making:
            return self._line(began).transport

    def session(self, command: str) -> Channel:
        """Run a command; its channel."""
        end = time.monotonic() + _FULL
        while True:
            began = time.monotonic()
            with self._making:
                line = self._free_line(began)
                if line is not None:
                    line.opening += 1
            if line is None:
                if began > end:
                    raise failures.no_session(self.target, "all that it grants are in use", len(self._lines))
                cancel.wait(0.1) if not cancel.stopped else time.sleep(0.1)
                continue
            try:
                return self._opened(line, command)
            except paramiko.ChannelException as error:
                with self._making:
                    self._learn(line, error)
            finally:
                with self._making:
                    line.opening -= 1

    def _opened(self, line: _Line, command: str) -> Channel:
        try:
            channel = line.transport.opened("session", self.target.timeout)
            line.add(channel)
            channel.exec_command(command)
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            if line.transport.is_active() and str(error) == "Channel closed.":
                raise failures.no_session(self.target, "it runs no command", 1) from error
            line.transport.close()  # it does not answer: whoever else uses it must learn that as well
            raise self.lost(error) from error
        return channel

    def _learn(self, line: _Line, error: paramiko.ChannelException) -> None:
        """A session was refused: so many are what sshd grants on one connection (MaxSessions). The caller holds the
        lock, and one of those that are being opened there.
        """
        running = line.in_use() - line.opening
        if not line.granted and line.opening == 1:
            raise failures.no_session(self.target, str(error), len(self._lines)) from error
        self._most = max(1, min(self._most, running))
        line.busy = time.monotonic() + _BUSY

    def _free_line(self, began: float) -> _Line | None:
        """One that may take another session, made if there is none; None when there may be no more of them."""
        self._lines = [line for line in self._lines if line.transport.is_active()]
        for line in self._lines:
            if line.busy < began and line.in_use() < self._most:
                return line
        return self._made(began) if len(self._lines) < _LINES else None

    def _line(self, began: float) -> _Line:
        """Any, made if there is none. The caller holds the lock."""
        self._lines = [line for line in self._lines if line.transport.is_active()]
        return self._lines[0] if self._lines else self._made(began)

    def _made(self, began: float) -> _Line:
        if self._failure and self._failure[0] >= began:
            raise self._failure[1]  # somebody else tried while this thread waited
        try:
            self._lines.append(_Line(self._connect()))
        except NodeError as error:
            self._failure = time.monotonic(), error
            raise
        return self._lines[-1]

    def forward(self, host: str, port: int) -> Channel:
        """A connection from the server on to `host:port`, as seen from there."""
        transport = self.transport()
        try:
            return transport.opened("direct-tcpip", self.target.timeout, (host, port))
        except paramiko.ChannelException as error:
            raise failures.no_way_on(self.target, host, port, error) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self.lost(error) from error

    def listen(self, handler: Callable[[paramiko.Channel], None]) -> int:
        """Let the server listen on a free port of its own 127.0.0.1; each connection is given to `handler`, in the
        transport's thread. Returns the port. It listens until `unlisten`, or the connection ends.
        """
        transport = self.transport()
        try:
            with self._requests:
                port = transport.request_port_forward(
                    "127.0.0.1", 0, lambda channel, _origin, _server: handler(own(channel))
                )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise failures.no_listening(self.target, str(error)) from error
        return int(port)

    def unlisten(self, port: int) -> None:
        """Let the server listen no more; fine when the connection is gone."""
        for line in self._lines[:1]:
            if line.transport.is_active():
                with self._requests:
                    line.transport.cancel_port_forward("127.0.0.1", port)

    @property
    def alive(self) -> bool:
        """Whether there is a connection."""
        return any(line.transport.is_active() for line in self._lines)

    def lost(self, error: BaseException | None = None) -> NodeError:
        """The error for a connection that broke."""
        return failures.lost(self.target, error)

    def close(self) -> None:
        """End it."""
        # Without the lock: at a ctrl-C, nobody waits for what is still being connected.
        lines, self._lines = self._lines, []
        for line in lines:
            line.transport.close()

    # -- making it -----------------------------------------------------------------------------------------------

    def host_key(self) -> HostKey:
        """The key that the server shows now, checked against nothing; the jump hosts before it are checked."""
        transport, key = self._shaken([], certified=hostkeys.certified(self.known()))
        transport.close()
        return key

    def known(self) -> list[hostkeys.Entry]:
        """What files say of the server's key."""
        return hostkeys.known(self.target.known_as, self._own, self.target.files)

    def opinion(self, shown: HostKey, found: list[hostkeys.Entry]) -> hostkeys.Opinion:
        """What to think of the key that the server shows. NodeError when that cannot be known."""
        place = revoked.where(shown, self.target.revoked)
        if place:
            return hostkeys.Opinion("revoked", where=place)
        return hostkeys.judge(shown, self.target.pin, found, self.target.known_as)

    def _connect(self) -> Transport:
        target, found = self.target, self.known()
        certified = not target.pin and hostkeys.certified(found)
        transport, shown = self._shaken(hostkeys.types(target.pin, found), certified=certified)
        try:
            self._accept(shown, found)
            transport.auth_timeout = AUTH_TIMEOUT
            log_in(transport, target)
        except (paramiko.SSHException, EOFError, OSError) as error:
            transport.close()
            raise self.lost(error) from error
        except BaseException:
            transport.close()
            raise
        threading.Thread(target=self._pulse, args=(transport,), name=f"pulse {target.host}", daemon=True).start()
        return transport

    def _accept(self, shown: HostKey, found: list[hostkeys.Entry]) -> None:
        opinion = self.opinion(shown, found)
        if opinion.state == "uncertified":
            raise failures.certificate_not_accepted(self.target, shown, opinion)
        if opinion.state != "known":
            raise failures.key_not_accepted(self.target, shown, opinion)

    def _shaken(self, known_types: list[str], *, certified: bool) -> tuple[Transport, HostKey]:
        """A transport whose keys are exchanged, with nobody logged in, and the host key that was shown."""
        for wait in (*_STARTS, None):
            began = time.monotonic()
            way = self._socket()
            transport = Transport(way, packetizer_class=Ears)
            transport.prefers_certificates = certified
            try:
                return transport, self._exchange(transport, known_types)
            except (paramiko.SSHException, EOFError, OSError) as error:
                transport.close()
                took = time.monotonic() - began
                if wait is None or took > _AT_ONCE or not failures.dropped(error):
                    said = way.said() if isinstance(way, ProxySocket) else ""
                    raise failures.not_ssh(self.target, error, took, said) from error
                time.sleep(wait)
            except BaseException:
                transport.close()
                raise
        raise AssertionError

    def _exchange(self, transport: Transport, known_types: list[str]) -> HostKey:
        options = transport.get_security_options()
        options.ciphers = _first(_CIPHERS, options.ciphers)
        options.kex = _first(_EXCHANGES, options.kex)
        wanted = [one for name in known_types for one in (_OF_RSA if name == "ssh-rsa" else (name,))]
        options.key_types = _first((*wanted, *_KEY_TYPES), options.key_types)
        # paramiko#822: a rekey of ours in the middle of a big transfer can stall; sshd asks for one when it wants one
        transport.packetizer.REKEY_BYTES = 1 << 45
        transport.banner_timeout = self.target.timeout
        transport.handshake_timeout = self.target.timeout + 5
        transport.start_client(timeout=self.target.timeout + 5)
        key = transport.get_remote_server_key()
        certificate = key.public_blob.key_blob if key.public_blob else b""
        return HostKey(key.get_name(), key.get_base64(), certificate)

    def _socket(self) -> socket.socket | Channel:
        target = self.target
        if self._via is not None:
            return self._via.forward(target.host, target.port)
        try:
            if target.proxy:
                return ProxySocket(target.proxy)
            made = connected(target)
        except OSError as error:
            raise failures.not_connected(target, error) from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(PATIENCE * 1000))
        return made

    def _pulse(self, transport: Transport) -> None:
        """Ask for a sign of life now and then, and close a transport that gives none: all its readers wake up."""
        ears = transport.packetizer
        if not isinstance(ears, Ears):
            return
        while transport.is_active():
            time.sleep(PULSE)
            if not transport.is_active() or time.monotonic() - ears.heard < PULSE / 2:
                continue
            asked = time.monotonic()
            guard = threading.Timer(PATIENCE, _close_if_silent, args=(transport, ears, asked))
            guard.daemon = True
            guard.start()
            try:
                with self._requests:
                    # paramiko's own keep-alive wants no answer, and its waiting requests wait for ever
                    message = paramiko.Message()
                    message.add_byte(b"\x50")  # SSH_MSG_GLOBAL_REQUEST, RFC 4254 section 4
                    message.add_string("keepalive@openssh.com")
                    message.add_boolean(True)
                    transport._send_user_message(message)  # type: ignore[attr-defined] # noqa: SLF001
                    while ears.heard < asked and transport.is_active():
                        time.sleep(0.05)
            except (paramiko.SSHException, EOFError, OSError):
                transport.close()
            finally:
                guard.cancel()


def _close_if_silent(transport: Transport, ears: Ears, asked: float) -> None:
    if ears.heard < asked:
        transport.close()


def _first(preferred: Sequence[str], offered: Sequence[str]) -> tuple[str, ...]:
    """What is offered, with what is preferred in front."""
    front = [name for name in dict.fromkeys(preferred) if name in offered]
    return (*front, *(name for name in offered if name not in front))
