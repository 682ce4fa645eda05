"""What OpenSSH makes of its configuration for a server: `ssh -G`, which connects nowhere."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping

from sparkbuild.core import child
from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh import configfile

PROGRAM = "ssh"
SYSTEM = "/etc/ssh/ssh_config"
TIME = 15.0  # seconds for an answer: `Match exec` runs programs, and canonical names are asked of DNS
_OLD = re.compile(r"(unknown|illegal) option")  # before OpenSSH 6.8 there was no -G
_DEFAULT_KEYS = re.compile(r"~/\.ssh/id_[a-z0-9_]+")
_DEPTH = 16  # of files that include files, as OpenSSH has it
_INCLUDE = re.compile(r"(?i)(\s*include\s*[=\s]\s*)(.*)")
_PATHS = re.compile(
    r"(?i)\s*(identityfile|certificatefile|identityagent|userknownhostsfile|globalknownhostsfile|revokedhostkeys)\b"
)

# option, in lower case, to its values, in their order
Options = Mapping[str, tuple[str, ...]]


def user_file() -> str:
    """The user's own configuration."""
    return os.path.expanduser("~/.ssh/config")


def options(host: str, user: str, port: int) -> Options | None:
    """All that OpenSSH would use to reach `host`, with its own defaults; `user` and `port` as on its command line, ""
    and 0: not given. None when there is no such program here, or one that is too old to tell. NodeError when it does
    not accept its configuration.
    """
    given = (["-l", user] if user else []) + (["-p", str(port)] if port else [])
    # the command makes it a session of type exec, which `Match sessiontype` asks for, as the agent's are
    argv = [PROGRAM, "-G", "-T", *given, "--", host, "python3"]
    text = _foreign_home()
    try:
        if text is None:
            return _ask(argv)
        held = os.memfd_create("ssh_config")  # it is read once more for `Match final`: a pipe would be empty by then
        try:
            os.write(held, text)
            return _ask([PROGRAM, "-F", f"/proc/{os.getpid()}/fd/{held}", *argv[1:]])
        finally:
            os.close(held)
    except (FileNotFoundError, PermissionError):
        return None


def _ask(argv: list[str]) -> Options | None:
    pipe = subprocess.PIPE
    process = child.spawn(argv, stdout=pipe, stderr=pipe, tethered=False, final=True)
    try:
        out, err = process.communicate(timeout=TIME)
    except subprocess.TimeoutExpired:
        raise _unreadable(
            f"`ssh -G {argv[-2]}` did not end within {TIME:g} s: a program of `Match exec`, or a slow name server"
        ) from None
    finally:
        child.end(process, grace=1.0)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    said = "\n".join(
        line for line in err.decode(errors="replace").splitlines() if not line.startswith("Pseudo-terminal")
    )
    if process.returncode != 0:
        if _OLD.search(said):
            return None
        raise _unreadable(said or f"`ssh -G {argv[-2]}` ended with code {process.returncode}")
    return _parsed(os.fsdecode(out))


def _parsed(text: str) -> Options:
    if "\0" in text:  # no path can hold one
        raise _unreadable("`ssh -G` answers with a zero byte")
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        option, _, value = line.partition(" ")
        found[option] = (*found.get(option, ()), value)
    keys = found.get("identityfile", ())
    if len(keys) > 2 and all(_DEFAULT_KEYS.fullmatch(key) for key in keys):
        del found["identityfile"]  # nobody named any: these are its own
    return found


def _foreign_home() -> bytes | None:
    """The configuration to give to ssh where HOME says something else than the password file, which is all that ssh
    looks at: the files that it would read if HOME counted. None where the two agree.
    """
    home = os.path.expanduser("~")
    try:
        if os.path.samefile(home, pwd.getpwuid(os.getuid()).pw_dir):
            return None
    except (KeyError, OSError):
        pass
    lines: list[str] = []
    try:
        files = configfile.Files()
        lines = [_absolute(line, home) for line in files.read(user_file()).splitlines()]
        _check_included(files, lines, 0)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unreadable(error.strerror or str(error)) from error
    known = " ".join(f'"{home}/.ssh/{name}"' for name in ("known_hosts", "known_hosts2"))
    more = ["Match all", f'Include "{SYSTEM}"', "Match all", f"UserKnownHostsFile {known}", ""]
    return "\n".join([*lines, *more]).encode(errors="surrogateescape")


def _check_included(files: configfile.Files, lines: list[str], depth: int) -> None:
    """Raise NodeError when others may write an included file: ssh looks at that only of files that it found itself."""
    for line in lines:
        match = _INCLUDE.fullmatch(line)
        for word in match[2].replace('"', " ").split() if match and depth < _DEPTH else ():
            for path in configfile.included(os.path.expanduser(word)):
                _check_included(files, files.read(path).splitlines(), depth + 1)


def _absolute(line: str, home: str) -> str:
    """A line of a configuration with the home in it, where it means the home."""
    if _PATHS.match(line):
        return re.sub(r'(?<=[\s="])~/', f"{home}/", line).replace("%d", home)
    match = _INCLUDE.fullmatch(line)
    if match is None:
        return line
    words = [os.path.join(home, ".ssh", os.path.expanduser(word)) for word in match[2].replace('"', " ").split()]
    return match[1] + " ".join(f'"{word}"' for word in words)


def _unreadable(found: str) -> NodeError:
    return NodeError(
        "the ssh configuration cannot be read",
        where=user_file(),
        found=found,
        next="mend that file; `ssh -G x` shows what OpenSSH makes of it",
    )
