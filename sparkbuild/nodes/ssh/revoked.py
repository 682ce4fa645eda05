"""Keys of servers that count for nothing, whatever else says that they are right: the files of RevokedHostKeys.

Such a file holds public keys, one on a line, or is a KRL, which ssh-keygen reads (its section KEY REVOCATION LISTS).
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable

from sparkbuild.core import child
from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import certificates
from sparkbuild.nodes.ssh.hostkeys import HostKey

_KRL = b"SSHKRL\n\0"  # the first bytes of one
_KEYGEN = "ssh-keygen"
_TIME = 15.0  # seconds for an answer of it


def where(shown: HostKey, files: Iterable[str]) -> str:
    """Where it is written that the key, its certificate or the authority of that is revoked; "" when it is not. As
    OpenSSH, nobody is trusted while such a file cannot be read: NodeError.
    """
    for path in files:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
        line = _asked(shown, path) if content.startswith(_KRL) else _listed(shown, content)
        if line is not None:
            return f"{path}{line}"
    return ""


def _listed(shown: HostKey, content: bytes) -> str | None:
    """`:LINE` of a list of keys that has it."""
    bad = {shown.text.encode(), *(text.encode() for text in _of_certificate(shown))}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.lstrip().startswith(b"#") and bad & set(line.split()):
            return f":{number}"
    return None


def _of_certificate(shown: HostKey) -> tuple[str, ...]:
    if not shown.certificate:
        return ()
    text = base64.b64encode(shown.certificate).decode()
    try:
        return (text, certificates.parsed(shown.certificate).authority)
    except ValueError:  # nobody trusts that one, whoever signed it
        return (text,)


def _asked(shown: HostKey, path: str) -> str | None:
    """An empty text when the KRL has the key, or the certificate that it came in."""
    blob = shown.certificate or base64.b64decode(shown.text)
    name = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode(errors="replace")
    public = f"{name} {base64.b64encode(blob).decode()}\n".encode()
    pipe = subprocess.PIPE
    argv = [_KEYGEN, "-Q", "-f", path, "/dev/stdin"]
    try:
        process = child.spawn(argv, stdin=pipe, stdout=pipe, stderr=pipe, tethered=False, final=True)
    except OSError as error:
        raise _unreadable(path, f"it is a KRL, and {_KEYGEN} does not run: {error.strerror}") from error
    try:
        out, err = process.communicate(public, timeout=_TIME)
    except subprocess.TimeoutExpired:
        raise _unreadable(path, f"`{_KEYGEN} -Q` did not end within {_TIME:g} s") from None
    finally:
        child.end(process, grace=1.0)
    if process.returncode == 0:
        return None
    if b"REVOKED" in out:
        return ""
    raise _unreadable(path, (err or out).decode(errors="replace").strip() or f"code {process.returncode}")


def _unreadable(path: str, found: str) -> NodeError:
    return NodeError(
        "the file of revoked host keys cannot be read: no server is trusted without it, as with OpenSSH",
        where=f"{path}, by RevokedHostKeys of the ssh configuration",
        found=found,
        next="mend the file, or take RevokedHostKeys out",
    )
