"""A lane that runs as processes and that no record names: what is seen of it."""

from __future__ import annotations

from typing import TypedDict


class ProcessLane(TypedDict):
    """A lane that runs as processes and that no record of this store names. `pid` is its first process, `user` whose it
    is, `store` where it was launched from ("" when that is not known; `ours`: this very store, without a record),
    `ports` those it listens on, `since` unix seconds. `gpus`: the node has some, which no two engines share well.
    """

    recipe: str
    pid: int
    user: str
    store: str
    ours: bool
    ports: list[int]
    since: float
    gpus: bool
