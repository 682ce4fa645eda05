"""Host keys: what is known of a server's key, from pins and known_hosts files, and recording a new one.

Format of the files: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT: `[@marker] names type base64 [comment]`, where names are
patterns with commas between, or one hashed name `|1|salt|hash`. A line with @cert-authority holds the key of an
authority whose certificates count for these names, one with @revoked a key that counts for nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from sparkbuild.core import wholefile
from sparkbuild.core.errors import NodeError
from sparkbuild.core.locks import FolderLock
from sparkbuild.nodes.ssh import certificates
from sparkbuild.nodes.ssh.tokens import fits

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"


@dataclass(frozen=True)
class HostKey:
    """A server's public key: its type and its base64 text, as files have them; the certificate it came in, or b""."""

    type: str
    text: str
    certificate: bytes = field(default=b"", compare=False)

    @property
    def fingerprint(self) -> str:
        """`SHA256:...`, as ssh-keygen -l shows it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(self.text)).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file; `where` is file:line."""

    marker: str
    names: str
    key: HostKey
    where: str

    def is_of(self, name: str) -> bool:
        """Whether the line speaks of a server of this name ("10.0.0.11", "[10.0.0.11]:2222")."""
        if self.names.startswith("|1|"):
            return _is_hash_of(self.names, name)
        patterns = self.names.lower().split(",")
        if any(one.startswith("!") and fits(one[1:], name) for one in patterns):
            return False
        return any(fits(one, name) for one in patterns)


@dataclass(frozen=True)
class Opinion:
    """What is known of the key a server showed. `state`: known, unknown, changed, revoked, uncertified. `wanted` are
    fingerprints of keys that would have been right, `where` is where that is written. Uncertified: there is an
    authority for the server, and no certificate that speaks for it; `where` says why.
    """

    state: str
    wanted: tuple[str, ...] = ()
    where: str = ""
    pinned: bool = False


def entries(path: str) -> list[Entry]:
    """The lines of a known_hosts file that hold a key; none when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NodeError("known host keys cannot be read", where=path, found=error.strerror or str(error)) from error
    found = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or not _is_key(words[2]):
            continue
        found.append(Entry(marker, words[0], HostKey(words[1], words[2]), f"{path}:{number}"))
    return found


def known(name: str, own: str, others: Sequence[str]) -> list[Entry]:
    """All that the files say of a server: the workspace's own file, if it says anything, instead of the others. Keys
    that were revoked anywhere are among them.
    """
    mine = [entry for entry in entries(own) if entry.is_of(name)]
    theirs = [entry for path in others for entry in entries(path) if entry.is_of(name)]
    good = [entry for entry in mine or theirs if entry.marker in {"", AUTHORITY}]
    return good + [entry for entry in (*mine, *theirs) if entry.marker == REVOKED]


def judge(shown: HostKey, pin: str, found: Iterable[Entry], name: str) -> Opinion:
    """What to think of the key that a server shows, which files would know as `name`."""
    found = list(found)
    revoked = {entry.key.text: entry.where for entry in found if entry.marker == REVOKED}
    if shown.text in revoked:
        return Opinion("revoked", where=revoked[shown.text])
    if pin:
        wanted = pinned(pin)
        state = "known" if wanted == shown.fingerprint else "changed"
        return Opinion(state, (wanted,), "host_key in config.toml", pinned=True)
    good = [entry for entry in found if not entry.marker]
    for entry in good:
        if entry.key.text == shown.text:
            return Opinion("known", (shown.fingerprint,), entry.where)
    certified = _by_certificate(shown, found, revoked, name)
    if certified is not None and (certified.state == "known" or not good):
        return certified
    if not good:
        return Opinion("unknown")
    wanted_all = tuple(dict.fromkeys(f"{entry.key.type} {entry.key.fingerprint}" for entry in good))
    return Opinion("changed", wanted_all, good[0].where)


def _by_certificate(shown: HostKey, found: Sequence[Entry], revoked: Container[str], name: str) -> Opinion | None:
    """What to think of the certificate that a server shows; None where there is no authority for it."""
    authorities = {e.key.text: e.where for e in found if e.marker == AUTHORITY and e.key.text not in revoked}
    if not authorities:
        return None
    if not shown.certificate:
        return Opinion("uncertified", where="it shows no certificate")
    problem = certificates.problem(shown.certificate, name.removeprefix("[").partition("]")[0], authorities)
    if problem:
        return Opinion("uncertified", where=problem)
    return Opinion("known", (shown.fingerprint,), authorities[certificates.parsed(shown.certificate).authority])


def pinned(pin: str) -> str:
    """The fingerprint that a pin ("SHA256:..." or "ssh-ed25519 AAAA... comment") stands for."""
    words = pin.split()
    if len(words) == 1 and words[0].startswith("SHA256:"):
        return words[0].rstrip("=")
    if len(words) >= 2 and _is_key(words[1]):
        return HostKey(words[0], words[1]).fingerprint
    raise NodeError(
        f"{pin!r} is no host key", where="host_key in config.toml", wanted="SHA256:... or ssh-ed25519 AAAA..."
    )


def types(pin: str, found: Iterable[Entry]) -> list[str]:
    """The types of key that are known, so that one of these is asked for; certificates are asked for beside."""
    words = pin.split()
    if pin:
        return [words[0]] if len(words) >= 2 else []
    return list(dict.fromkeys(entry.key.type for entry in found if not entry.marker))


def certified(found: Iterable[Entry]) -> bool:
    """Whether there is an authority whose certificate the server may show."""
    return any(entry.marker == AUTHORITY for entry in found)


def record(path: str, name: str, key: HostKey) -> None:
    """Write the key of `name` into a known_hosts file, in place of those it had there; other lines stay as they are.
    The file is whole at every moment, and of two that record at once both have their say.
    """
    with FolderLock(os.path.dirname(path) or "."):
        _replace(path, name, key)


def _replace(path: str, name: str, key: HostKey) -> None:
    kept = []
    if os.path.exists(path):
        old = {int(entry.where.rpartition(":")[2]): entry for entry in entries(path)}
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file.read().splitlines(), 1):
                entry = old.get(number)
                kept += [line] if entry is None or entry.marker else _without(line, entry, name)
    kept.append(f"{name} {key.type} {key.text}")
    text = "\n".join(kept) + "\n"
    wholefile.replace(path, text.encode(errors="surrogateescape"), ours=False)


def _without(line: str, entry: Entry, name: str) -> list[str]:
    """The line without that name; nothing when it has no other."""
    if entry.names.startswith("|1|"):
        return [] if entry.is_of(name) else [line]
    names = entry.names.split(",")
    rest = [one for one in names if one.lower() != name]
    if len(rest) == len(names):
        return [line]
    return [line.replace(entry.names, ",".join(rest), 1)] if rest else []


def _is_hash_of(names: str, name: str) -> bool:
    try:
        _, _, salt, digest = names.split("|")
        found = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(found, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) > 16
    except (ValueError, binascii.Error):
        return False
