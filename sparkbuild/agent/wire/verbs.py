"""What types a question to an agent: a verb, or what is to be looked at, with the shapes of its request and answer.

A domain has its verbs beside its shapes (`wire.lanes.STOP`), so that nobody loads the shapes of all. Both ends name the
same shapes: mypy holds the caller to them, `tests/test_wire.py` the agent's `run` and `observe`, and what came over the
wire is held against the answer's shape at run time (nodes/rpc/shapes.py).
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypedDict, TypeVar

Ask_contra = TypeVar("Ask_contra", contravariant=True)
Told_co = TypeVar("Told_co", covariant=True)


class _Placed(TypedDict):
    store: str
    docker: str


class Placed(_Placed, total=False):
    """What the connection adds to every question: the node's store, absolute, and docker's socket ("": the usual one);
    over ssh also `remote`.
    """

    remote: bool


class _Absent(TypedDict):
    present: Literal[False]


class Absent(_Absent, total=False):
    """The fact of what is not there, or not as it should be. `problem` says why in words, `refused` has the fields of
    an error of the system, and `hung` those of a disk that does not answer: whether it is there cannot be said.
    """

    problem: str | None
    refused: dict[str, str]
    hung: dict[str, str]


class Endless(TypedDict):
    """The result of a verb that has none: it goes on until its stdin ends."""


class Verb(str, Generic[Ask_contra, Told_co]):
    """A verb of the agent: its name, the TypedDict of its result, and that of a result whose `present` is false. What
    the caller asks lacks what the connection adds: `Placed`.
    """

    __slots__ = ("absent", "result")
    result: type[Told_co]
    absent: type[Any] | None

    def __new__(
        cls, name: str, result: type[Told_co], absent: type[Told_co] | None = None
    ) -> Verb[Ask_contra, Told_co]:
        """`name`: as agent.main.VERBS has it."""
        verb = super().__new__(cls, name)
        verb.result, verb.absent = result, absent
        return verb


class Look(str, Generic[Ask_contra, Told_co]):
    """What the verb `facts` may be asked: the scheme's name, the TypedDict of its fact, and that of what says
    `present`: false. Several looks of one scheme have different facts.
    """

    __slots__ = ("absent", "fact")
    fact: type[Told_co]
    absent: type[Any]

    def __new__(
        cls, scheme: str, fact: type[Told_co], absent: type[Told_co | Absent] = Absent
    ) -> Look[Ask_contra, Told_co]:
        """`scheme`: as agent.facts.OBSERVERS has it."""
        look = super().__new__(cls, scheme)
        look.fact, look.absent = fact, absent
        return look
