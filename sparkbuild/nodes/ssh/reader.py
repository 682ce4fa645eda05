"""~/.ssh/config and the system's, read where there is no OpenSSH to ask. What is not known here is refused by name: an
option that was guessed wrong leads to another machine, or logs in as another user.
"""

from __future__ import annotations

import os
import re
from typing import Any

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import configfile, openssh
from sparkbuild.nodes.ssh.openssh import Options

_DEPTH = 8  # of Include
_COMMENT = re.compile(r"\s#.*$")
_WORD = re.compile(r"\s*([A-Za-z0-9]+)\s*[=\s]\s*(.*?)\s*")
_CRITERIA = {"all", "host", "originalhost", "user", "localuser"}
_FILES = {"userknownhostsfile", "globalknownhostsfile"}

# What Targets uses, beside Host, Match and Include.
_USED = {
    "addressfamily", "bindaddress", "bindinterface", "certificatefile", "connecttimeout", "globalknownhostsfile",
    "hostkeyalias", "hostname", "identitiesonly", "identityagent", "identityfile", "port", "proxycommand", "proxyjump",
    "user", "userknownhostsfile",
}  # fmt: skip
# What decides neither which server is meant, nor who logs in, nor which key it must have.
_IDLE = {
    "addkeystoagent", "batchmode", "checkhostip", "ciphers", "clearallforwardings", "compression",
    "connectionattempts", "controlmaster", "controlpath", "controlpersist", "dynamicforward", "escapechar",
    "exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "forwardx11timeout", "forwardx11trusted",
    "gatewayports", "gssapiauthentication", "gssapidelegatecredentials", "hashknownhosts", "hostkeyalgorithms",
    "ipqos", "kbdinteractiveauthentication", "kexalgorithms", "localcommand", "localforward", "loglevel", "macs",
    "numberofpasswordprompts", "passwordauthentication", "permitlocalcommand", "preferredauthentications",
    "pubkeyacceptedalgorithms", "pubkeyauthentication", "rekeylimit", "remoteforward", "requesttty", "sendenv",
    "serveralivecountmax", "serveraliveinterval", "setenv", "stricthostkeychecking", "syslogfacility", "tcpkeepalive",
    "updatehostkeys", "verifyhostkeydns", "visualhostkey",
}  # fmt: skip


def options(host: str, user: str) -> Options:
    """As of openssh.options, without its defaults. NodeError for what is not known here."""
    path = openssh.user_file()
    files = configfile.Files()
    text = "\n".join([*_lines(files, path, 0, "Host *"), "Host *", *_lines(files, openssh.SYSTEM, 0, "Host *")])
    if not text.removesuffix("Host *").strip():
        return {}
    from paramiko import SSHConfig  # noqa: PLC0415 - 110 ms, only where there is a file

    try:
        config = SSHConfig.from_text(text)
        config.TOKENS_BY_CONFIG_KEY = {"hostname": ["%h"]}  # all others are filled in by Targets
        said: dict[str, Any] = dict(config.lookup(host))
    except Exception as error:  # the parser raises whatever its lines make it stumble over
        raise _unreadable(path, str(error) or type(error).__name__) from error
    unknown = sorted(set(said) - _USED - _IDLE)
    if unknown:
        raise _refused(path, ", ".join(unknown))
    if {"proxyjump", "proxycommand"} <= set(said):
        raise _refused(path, f"ProxyJump and ProxyCommand, both for {host}")
    if user:
        said["user"] = user
    return {name: tuple(value) if name == "identityfile" else (_joined(value),)
            for name, value in said.items() if value is not None}  # fmt: skip


def _joined(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _lines(files: configfile.Files, path: str, depth: int, block: str) -> list[str]:
    """The lines of a configuration with its Include lines replaced by what they name; paramiko leaves them out. Lines
    after an Include belong to the block that they stood in, not to the last one of the included file.
    """
    try:
        lines = files.read(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    out: list[str] = []
    for line in lines:
        bare = "" if line.lstrip().startswith("#") else line if '"' in line else _COMMENT.sub("", line)
        match = _WORD.fullmatch(bare)
        word, rest = (match[1].lower(), match[2]) if match else ("", "")
        if word in {"host", "match"}:
            block = bare.strip()
        _check(path, word, rest)
        if word == "proxycommand" and rest.lower() == "none":
            bare = "ProxyJump none"  # the same to OpenSSH: whichever of the two is said first counts
        if word == "include" and depth < _DEPTH:
            out += [*_included(files, path, rest, depth, block), block]
        else:
            out.append(bare)
    return out


def _included(files: configfile.Files, path: str, patterns: str, depth: int, block: str) -> list[str]:
    folder = os.path.dirname(path)
    wanted = [os.path.join(folder, os.path.expanduser(one)) for one in patterns.replace('"', " ").split()]
    found = (name for one in wanted for name in configfile.included(one))
    return [line for name in found for line in _lines(files, name, depth + 1, block)]


def _check(path: str, option: str, rest: str) -> None:
    """Refuse what paramiko would take for something else, or end with, wherever it stands."""
    if option == "canonicalizehostname" and rest.lower() != "no":
        raise _refused(path, option)
    words = iter(rest.split() if option == "match" else ())
    for word in words:
        criterion = word.lower().removeprefix("!")
        if criterion not in _CRITERIA:
            raise _refused(path, f"Match {criterion}")
        if criterion != "all":
            next(words, None)


def _refused(path: str, what: str) -> NodeError:
    return NodeError(
        "the ssh configuration says what only OpenSSH can answer, and there is no `ssh` here",
        where=path,
        found=what,
        next="install OpenSSH's client (Debian, Ubuntu: apt-get install openssh-client)",
    )


def _unreadable(path: str, found: str) -> NodeError:
    return NodeError("the ssh configuration cannot be read", where=path, found=found, next="mend that file")
