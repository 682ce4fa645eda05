"""The one error tree. A message says what, where, what was found, what was wanted, and the next command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbuild.agent.wire.printable import lines


class SparkbuildError(Exception):
    """Base of everything a user may be shown; `str()` of it is the whole message, ready to print:
    what others wrote in it is printable there.

    Arguments other than `what` are optional; an empty one is left out of the message.
    """

    def __init__(self, what: str, *, where: str = "", found: str = "", wanted: str = "", next: str = "") -> None:  # noqa: A002 - the field is called "next" on screen too
        super().__init__(what)
        self.what = what
        self.where = where
        self.found = found
        self.wanted = wanted
        self.next = next

    def __str__(self) -> str:
        told = [lines(self.what)]
        for label in ("where", "found", "wanted", "next"):
            text = getattr(self, label)
            if text:
                head, *rest = lines(str(text)).rstrip("\n").split("\n")
                told.append(f"  {label + ':':<7} {head}")
                told.extend(f"          {line}" for line in rest)
        return "\n".join(told)

    def as_dict(self) -> dict[str, str]:
        """The message as JSON fields; empty fields are left out."""
        fields = ("what", "where", "found", "wanted", "next")
        return {name: getattr(self, name) for name in fields if getattr(self, name)}


class ConfigError(SparkbuildError):
    """Something the user wrote in the workspace is wrong; `where` is `file:line`. `root` is the mistake of another file
    that this one follows from.
    """

    root: ConfigError | None = None


class LockError(ConfigError):
    """A `*.source.lock` cannot be read, or disagrees with the files it pins."""


class IntegrityError(SparkbuildError):
    """Bytes are not the bytes that were pinned or recorded."""


class SpaceError(SparkbuildError):
    """A file system has not enough room for what would be written."""


class PortInUseError(SparkbuildError):
    """A port a lane needs is held by another process."""


class EngineDiedError(SparkbuildError):
    """A lane's process ended before it was ready; the message carries its last log lines."""


class NotReadyError(SparkbuildError):
    """A lane did not become ready within its budget."""


class WrongModelError(SparkbuildError):
    """A lane answers, but as another model than its recipe says."""


class GateError(SparkbuildError):
    """The served model failed a gate; the message carries its answer. `results` are those of all gates that ran."""

    results: Sequence[Any] = ()


class BuildError(SparkbuildError):
    """A step of a Dockerfile failed, or a gate of the image; the message carries the last lines it printed."""


class ChildError(SparkbuildError):
    """A child process ended with a non-zero code."""


class NodeError(SparkbuildError):
    """A node cannot be reached or its agent did not answer."""


class NoForwardingError(NodeError):
    """The sshd of a node, or of a host on the way to it, forwards no port."""


class NotPulledError(NodeError):
    """Docker on a node does not pull an image, which may be loaded there all the same."""


class UpstreamError(SparkbuildError):
    """A registry, a package index or a repository cannot be reached, or has not what was asked for.

    `reached`: it answered, so what it said counts. `wants_login`: it may have it, for whoever has a login.
    """

    reached = False
    wants_login = False


class StateError(SparkbuildError):
    """The workspace cannot be written to: its disk is full, read-only, or it is another user's."""


class UnsureError(SparkbuildError):
    """Nothing was found to be wrong, and not all that had to be asked did answer: exit code 4."""


class NotMadeError(SparkbuildError):
    """A step ended without an error, yet what it should have made is not there."""


class SealError(SparkbuildError):
    """A local input changed between planning and the end of the step that used it."""
