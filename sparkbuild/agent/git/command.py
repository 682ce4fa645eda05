"""Git as a child: never a prompt, no settings but ours, few protocols, bounded output, errors in plain words."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple, NoReturn

from sparkbuild.agent.wire.protocol import AgentError, Reporter

OUTPUT = 64 << 20  # bytes of stdout that anyone would read: a list of refs, a list of commits
_TAIL = 32 << 10  # bytes of stderr that are kept
_PROTOCOLS = "https:http:ssh:file"
_PASSED = (
    "HOME",  # for ssh's keys and known hosts, and curl's .netrc; git's own settings are switched off below
    "PATH",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "TMPDIR",
    *(f"{name}_proxy" for name in ("http", "https", "all", "no")),
    *(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")),
)
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
    "submodule.recurse=false",
    "http.lowSpeedLimit=1000",  # bytes a second, for
    "http.lowSpeedTime=60",  # seconds: a server that sends nothing is given up
    "safe.directory=*",  # the mirrors may be another user's who works in this store
)
_RECEIVED = re.compile(rb"Receiving objects:[^\r\n]*?, (\d{1,6}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB)")
_UNITS = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}


class GitError(Exception):
    """Git ended with an error; `text` is the end of what it said."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Output(NamedTuple):
    """What a finished git said on stdout."""

    out: bytes

    @property
    def text(self) -> str:
        """As text, without the last line end."""
        return self.out.decode(errors="replace").rstrip("\n")


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a git child; nothing of ours that could change what git does gets into it."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **passed,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "SSH_ASKPASS": "/bin/false",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",  # of git 2.44 and newer
        **(extra or {}),
    }


def argv(git_dir: str, arguments: Sequence[str]) -> list[str]:
    """The command line of a git that works in that repository ("" for none)."""
    settings = [piece for setting in _SETTINGS for piece in ("-c", setting)]
    return ["git", *settings, *([f"--git-dir={git_dir}"] if git_dir else []), *arguments]


def git(
    git_dir: str,
    *arguments: str,
    stdin: bytes = b"",
    extra: dict[str, str] | None = None,
    hold: int = -1,
    reporter: Reporter | None = None,
    folder: str = "/",
) -> Output:
    """Run git to its end, in `folder`. `hold` is a descriptor that stays open in it: the lock of what it changes, which
    must last as long as git does, even if this process is killed. `reporter` is told how much was received.

    Raises GitError when it ends with an error or says more than `OUTPUT` bytes; AgentError when there is no git.
    """
    process = start(argv(git_dir, arguments), environment(extra), hold, folder=folder)
    tail = bytearray()
    watcher = threading.Thread(target=_listen, args=(process.stderr, tail, reporter), daemon=True)
    feeder = threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True)
    watcher.start()
    feeder.start()
    out = bytearray()
    try:
        while block := process.stdout.read(1 << 16) if process.stdout else b"":
            out += block
            if len(out) > OUTPUT:
                raise GitError(f"git {arguments[0]} answers with more than {OUTPUT >> 20} MiB")
        code = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        watcher.join(timeout=5)
        feeder.join(timeout=5)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    if code:
        raise GitError(_said(bytes(tail)) or f"git {arguments[0]} ended with code {code}")
    return Output(bytes(out))


def start(
    command: list[str], env: dict[str, str], hold: int = -1, *, quiet: bool = False, folder: str = "/"
) -> subprocess.Popen[bytes]:
    """Start git, in the agent's own process group: it ends with the agent's caller. `quiet`: nobody reads its stderr.

    Raises AgentError without git.
    """
    pipe = subprocess.PIPE
    errors = subprocess.DEVNULL if quiet else pipe
    held = (hold,) if hold >= 0 else ()
    try:
        return subprocess.Popen(  # noqa: S603 - argv is a list, no shell
            command, stdin=pipe, stdout=pipe, stderr=errors, env=env, pass_fds=held, cwd=folder
        )
    except FileNotFoundError:
        raise AgentError(
            "git is not installed on this node",
            kind="node",
            where=os.environ.get("PATH", ""),
            wanted="git 2.30 or newer",
            next="install it, for example with `apt-get install git`",
        ) from None


def _feed(pipe: IO[bytes] | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        pipe.close()
    except OSError:  # git ended before it had read all: its code says why
        pass


def _listen(pipe: IO[bytes] | None, tail: bytearray, reporter: Reporter | None) -> None:
    while block := os.read(pipe.fileno(), 1 << 14) if pipe else b"":
        tail += block
        del tail[:-_TAIL]
        if reporter is not None and (counts := _RECEIVED.findall(block)):
            number, unit = counts[-1]
            reporter.progress("fetch", int(float(number) * _UNITS[unit]), None)


def _said(tail: bytes) -> str:
    """The last lines of stderr that are not progress."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", tail.decode(errors="replace"))]
    noise = ("remote: Enumerating", "remote: Counting", "remote: Compressing", "Receiving objects", "Resolving deltas")
    return "\n".join(line[:300] for line in lines if line and not line.startswith(noise))[-2000:]


_NO_SUCH = (
    "not our ref",
    "unadvertised object",
    "couldn't find remote ref",
    "dumb http transport",
    "no such remote ref",
)
_FULL, _GONE = "there is no space left for the repository", "there is no such repository"
_REASONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("dubious ownership",),
        "the repository belongs to another user, and git does not read those",
        "give its https:// or ssh:// URL, or a copy of this node's user",
    ),
    (("No space left",), _FULL, "make room, then run again"),
    (
        # With the words before a number: it may be in a port or a path as well.
        ("Permission denied (", "could not read Username", "Authentication failed", "error: 401", "error: 403",
         "HTTP 401", "HTTP 403"),
        "the repository wants a login that this node does not have",
        "is its name right? Else give this node's user a key for ssh://, or an entry in ~/.netrc for https://",
    ),
    (
        ("Host key verification failed",),
        "the host key of the repository's machine is not known to this node",
        "compare it, and add it to ~/.ssh/known_hosts on the node",
    ),
    (
        ("mismatched algorithms", "unsupported object format", "unknown object format"),
        "the repository has sha256 objects, which cannot be locked here: a lock's commits and trees are of sha1",
        "lock a repository with sha1 objects, as git makes them unless told otherwise",
    ),
    (
        ("Repository not found", "does not appear to be a git repository", "not found: did you run", "does not exist",
         "returned error: 404", "not found"),
        _GONE,
        "has it moved or gone? Correct `.repository` in the lock; commit and tree stay what they are",
    ),
    (("disconnect while", "still expected", "bad pack header", "early EOF"), "the answer was cut off", "run again"),
    (
        ("Could not resolve", "Connection refused", "timed out", "Couldn't connect", "Failed to connect",
         "Could not read from remote", "unable to access", "Operation too slow", "hung up"),
        "the repository cannot be reached",
        "run again when it can",
    ),
    (("protocol error", "invalid server response"), "what answers there is no git server", "is the URL right?"),
)  # fmt: skip


def no_such_object(error: GitError) -> bool:
    """True when the server has, or gives out, no object or ref of that name: another way of asking may help."""
    return any(text in error.text for text in _NO_SUCH)


def refuse(error: GitError, url: str, what: str = "") -> NoReturn:
    """Raise what git said about a repository as an AgentError."""
    for texts, meaning, next_ in _REASONS:
        if any(text in error.text for text in texts):
            kind = {_FULL: "space", _GONE: "gone"}.get(meaning, "node")
            raise AgentError(what or meaning, kind=kind, where=url, found=error.text, next=next_) from error
    raise AgentError(what or "git failed", kind="node", where=url, found=error.text) from error
