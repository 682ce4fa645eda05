"""Words that OpenSSH's files share: % tokens, ${VARIABLES} and ~ of a configuration (ssh_config(5), TOKENS), and the
patterns of host names (PATTERNS), which known_hosts files and certificates have, too.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import pwd
import re
import socket
from collections.abc import Mapping

from sparkbuild.core.errors import NodeError

_LONGEST = 1025  # bytes, NI_MAXHOST: no name is longer, and a certificate may say megabytes

_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def tokens(*, host: str, original: str, port: int, user: str, jump: str, alias: str) -> dict[str, str]:
    """What each letter stands for, for one server. `original` is the name that was asked for, `host` what it became."""
    here = socket.gethostname()
    together = f"{here}{host}{port}{user}{jump}".encode(errors="surrogateescape")
    return {
        "%": "%",
        "C": hashlib.sha1(together, usedforsecurity=False).hexdigest(),
        "d": os.path.expanduser("~"),
        "h": host,
        "i": str(os.getuid()),
        "j": jump,
        "k": alias or original,
        "L": here.partition(".")[0],
        "l": here,
        "n": original,
        "p": str(port),
        "r": user,
        "u": local_user(),
    }


def filled(text: str, known: Mapping[str, str], option: str, where: str) -> str:
    """The text with its tokens replaced. NodeError, which names it, for a token that is not known."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise NodeError(
                f"%{match[1]} in {option} is not known",
                where=where,
                found=text,
                wanted="one of " + ", ".join(f"%{letter}" for letter in known),
            )
        return known[match[1]]

    return _TOKEN.sub(value, text)


def path_of(text: str, known: Mapping[str, str], option: str, where: str) -> str:
    """A file that an option names, with its ~, variables and tokens replaced."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise NodeError(
                f"{option} names a variable that is not set", where=where, found=text, wanted=f"{match[1]} set"
            )
        return os.environ[match[1]].replace("%", "%%")

    return os.path.expanduser(filled(_VARIABLE.sub(value, text), known, option, where))


def local_user() -> str:
    """Who runs this, as OpenSSH sees it: by the password file, whatever LOGNAME says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "root"


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern of `*` and `?` means the name. fnmatch knows [classes] too, which OpenSSH does not:
    "[10.0.0.11]:22" is a name.
    """
    return len(pattern) <= _LONGEST and fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
