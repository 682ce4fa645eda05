"""What is said when an ssh connection cannot be made or is lost: node, user, address, what was found, what to do."""

from __future__ import annotations

import errno
import socket

from sparkbuild.core.errors import NodeError, NoForwardingError
from sparkbuild.nodes.ssh.config import Target
from sparkbuild.nodes.ssh.hostkeys import HostKey, Opinion

_PROHIBITED = 1  # RFC 4254, 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED


def not_connected(target: Target, error: OSError) -> NodeError:
    """No TCP connection."""
    what, wanted, advice = f"{target.name} cannot be reached", "an ssh server there", ""
    if isinstance(error, socket.gaierror):
        found = f"the name {target.host!r} cannot be resolved: {error.strerror}"
        wanted, advice = "", "set `address` in config.toml, or HostName in ~/.ssh/config"
    elif isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        found = f"no answer within {target.timeout:g} s"
        advice = f"is it switched on, is its network up? ping {target.host}"
    elif error.errno == errno.ECONNREFUSED:
        found = f"port {target.port} refuses: nothing listens there"
        advice = "is sshd running there; is `port` in config.toml right?"
    elif error.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH}:
        found = f"no route: {error.strerror}"
        advice = f"is it switched on, and on a network of this machine? ip route get {target.host}"
    else:
        found = error.strerror or str(error)
    return NodeError(what, where=target.where, found=found, wanted=wanted, next=advice)


def no_way_on(via: Target, host: str, port: int, error: BaseException) -> NodeError:
    """A jump host, or a node, does not connect to what is behind it."""
    what = f"{via.name} does not lead on to {host}:{port}"
    if getattr(error, "code", 0) == _PROHIBITED:
        return NoForwardingError(what, where=via.where, found="its sshd forbids it (AllowTcpForwarding)")
    return NodeError(what, where=via.where, found=f"from there it cannot be reached: {error}")


def no_session(target: Target, said: str, connections: int) -> NodeError:
    """The server opens no session, on none of so many connections."""
    return NodeError(
        f"{target.name} opens no session",
        where=target.where,
        found=f"{said}, on {connections} connection{'' if connections == 1 else 's'}",
        wanted="MaxSessions of 1 or more in its sshd_config, and room for another process",
        next="run again when less is done there at once, or raise MaxSessions (10 unless set)",
    )


def no_begin(target: Target, found: str) -> NodeError:
    """The command is started by a login shell, and does not begin."""
    return NodeError(
        f"the login shell of {target.user} on {target.name} does not come to the agent",
        where=target.where,
        found=found,
        wanted="a login shell that runs a command without saying or reading anything of its own",
        next=f"time ssh -p {target.port} {target.user}@{target.host} true </dev/null\n"
        "then look at what its .bashrc, .zshenv or .cshrc does where nobody is at a terminal",
    )


def eaten(target: Target) -> NodeError:
    """The agent did not get its request: something before it has read from its stdin."""
    return NodeError(
        f"the login shell of {target.user} on {target.name} reads what is sent to the agent",
        where=target.where,
        found="the request did not arrive whole",
        wanted="a login shell that reads nothing where nobody is at a terminal",
        next="look for read, cat or ssh in its .bashrc, .zshenv or .cshrc; </dev/null behind them helps",
    )


def too_long(target: Target, size: int) -> NodeError:
    """What comes is no line of an agent."""
    return NodeError(f"{target.name} talks without end", where=target.where, found=f"a line of {size} bytes")


def no_listening(target: Target, said: str) -> NodeError:
    """The server does not listen for us."""
    return NoForwardingError(
        f"{target.name} does not pass connections back",
        where=target.where,
        found=said,
        wanted="AllowTcpForwarding yes in its sshd_config",
    )


def dropped(error: BaseException) -> bool:
    """Whether the other side hung up before it said anything, as sshd does when many log in at once."""
    text = str(error)
    return isinstance(error, EOFError | ConnectionResetError) or "banner" in text


def not_ssh(target: Target, error: BaseException, took: float, said: str = "") -> NodeError:
    """Something is there, but no ssh handshake came of it within `took` seconds. `said`: by its ProxyCommand."""
    if target.proxy:
        return NodeError(
            f"{target.name} cannot be reached by its ProxyCommand",
            where=target.where,
            found="\n".join(text for text in (said, f"no ssh handshake: {str(error) or type(error).__name__}") if text),
            wanted="a command whose stdin and stdout lead to an ssh server",
            next="run it by hand: an ssh server says SSH-2.0 first",
        )
    text = str(error) or type(error).__name__
    found = f"no ssh handshake: {text}"
    if took >= target.timeout - 1:
        found = f"it took the connection, and said nothing for {took:.0f} s"
    elif "banner" in text.lower():
        found = f"what listens on port {target.port} does not talk ssh: {text}"
    elif "incompatible" in text.lower():
        found = f"no common algorithms: {text}"
    return NodeError(
        f"{target.name} does not complete an ssh connection",
        where=target.where,
        found=found,
        wanted="an OpenSSH server that is not overloaded",
        next=f"ssh -v -p {target.port} {target.user}@{target.host} true",
    )


def lost(target: Target, error: BaseException | None) -> NodeError:
    """A connection that was there is gone."""
    text = str(error or "")
    quiet = not text or text in {"Socket is closed", "SSH session not active", "Timeout opening channel."}
    return NodeError(
        f"lost the connection to {target.name}",
        where=target.where,
        found="it answers no more" if quiet else text,
        next="look whether it runs, then run again: what was done is kept",
    )


def certificate_not_accepted(target: Target, shown: HostKey, opinion: Opinion) -> NodeError:
    """It shows a certificate that does not speak for it, and its key alone is not known."""
    return NodeError(
        f"the host certificate of {target.name} is not accepted",
        where=target.where,
        found=f"{shown.type} {shown.fingerprint}: {opinion.where}",
        wanted=f"a certificate for {target.known_as} by an authority of the @cert-authority lines",
        next=f"doit trust {target.name}, after comparing the fingerprint, or a new certificate: ssh-keygen -s CA -h",
    )


def key_not_accepted(target: Target, shown: HostKey, opinion: Opinion) -> NodeError:
    """The host key is not known, or is another than the one that is."""
    trust = f"doit trust {target.name}"
    found = f"{shown.type} {shown.fingerprint}"
    if opinion.state == "unknown":
        return NodeError(
            f"the host key of {target.name} is not known",
            where=target.where,
            found=found,
            next=f"{trust}, after comparing the fingerprint with the node's own",
        )
    if opinion.state == "revoked":
        return NodeError(
            f"the host key of {target.name} was revoked",
            where=target.where,
            found=f"{found}, revoked in {opinion.where}",
            next="give the node a new key: ssh-keygen -A there, after removing the old one",
        )
    advice = f"{trust}, if the node was installed anew; otherwise somebody may be in between"
    if opinion.pinned:
        advice = "correct host_key in config.toml, if the node was installed anew; otherwise somebody may be in between"
    return NodeError(
        f"the host key of {target.name} has changed" if not opinion.pinned else f"{target.name} has another host key",
        where=target.where,
        found=found,
        wanted=", ".join(opinion.wanted) + f" ({opinion.where})",
        next=advice,
    )
