"""What an agent says while it works, by the kind of the event: as far as it is relied on."""

from typing import TypedDict


class Launched(TypedDict):
    """What launch a log is of."""

    rank: int
    nodes: list[str]


class State(TypedDict, total=False):
    """Of `watch`, while it watches."""

    listening: bool
    lines: list[str]


class Progress(TypedDict):
    """How far it is."""

    phase: str
    bytes: int
    total: int | None


class Log(TypedDict):
    """A line of the log."""

    text: str
