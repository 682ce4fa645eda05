"""Exports on the wire: a mirror as a tree of files, or as a folder composed of several staged ones."""

from typing import Literal, TypedDict, final

from sparkbuild.agent.wire.receipts import Parts
from sparkbuild.agent.wire.staging.staged import Claim, NamedProblem, Refusal, Traces
from sparkbuild.agent.wire.verbs import Absent, Look, Placed, Verb


class Snapshot(TypedDict):
    """A revision of a repository in a hub cache, which files are bound from."""

    cache: str
    repo: str
    revision: str


class Tree(TypedDict):
    """The snapshot of a mirror, or a subtree of it, as regular files. `binds`: globs over its paths; of these, what was
    not staged is bound from the source. Containers see it at `target`.
    """

    kind: Literal["tree"]
    mirror: str
    target: str
    subtree: str
    binds: list[str]
    source: Snapshot


class Composed(TypedDict):
    """The snapshot of a mirror as symbolic links, with the files of the folders `over` as hard links over them."""

    kind: Literal["composed"]
    mirror: str
    target: str
    over: list[str]


Linked = Tree | Composed


class Mount(TypedDict):
    """What a launch mounts, and where a container sees it."""

    source: str
    target: str
    read_only: bool


class ExportAsk(Claim, total=False):
    """With `what`, an export of folders that were staged anew since is held against their ledgers; with `full` too, any
    is. `keys` are those that its staged folders are to have, the mirror's first; `of` the recipe, block and export.
    """

    what: Linked
    full: bool
    of: str
    keys: list[str]
    hurry: bool


class ExportQuery(ExportAsk, Placed):
    """To the agent."""


class _ExportFact(TypedDict):
    present: Literal[True]
    key: str
    parts: Parts
    commit: str
    files: int
    mounts: list[Mount]
    problems: list[NamedProblem]


@final
class ExportFact(_ExportFact, total=False):
    """An export that has a manifest. `refused`: the error that making it would end with, {} for none."""

    refused: Refusal


@final
class NotExported(Absent, Traces):
    """An export without a manifest."""


EXPORT: Look[ExportAsk, ExportFact | NotExported] = Look("export", ExportFact, NotExported)


class LinktreeAsk(Claim):
    """An export to be made of staged folders."""

    parts: Parts
    what: Linked


class LinktreeRequest(LinktreeAsk, Placed):
    """To the agent."""


class LinktreeResult(TypedDict):
    """`files` in all; hard links, symbolic links and empty files that were made; names that were removed."""

    files: int
    made: int
    pointers: int
    empty: int
    removed: int
    mounts: int
    commit: str


LINKTREE: Verb[LinktreeAsk, LinktreeResult] = Verb("linktree", LinktreeResult)
