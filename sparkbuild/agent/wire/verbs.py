"""What types a question to an agent: a verb, or what is to be looked at, with the shapes of its request and answer.

A domain has its verbs beside its shapes (`wire.lanes.STOP`), so that nobody loads the shapes of all. Both ends name the
same shapes: mypy holds the caller to them, `tests/test_wire.py` the agent's `run` and `observe`, and what came over the
wire is held against the answer's shape at run time (nodes/rpc/shapes.py).
"""

from __future__ import annotations

from typing import Generic, TypeVar

Ask_contra = TypeVar("Ask_contra", contravariant=True)
Told_co = TypeVar("Told_co", covariant=True)


class Verb(str, Generic[Ask_contra, Told_co]):
    """A verb of the agent: its name, and the TypedDict of its result. What the caller asks lacks what the connection
    adds: `store`, `docker`, and over ssh `patience` and `remote`.
    """

    __slots__ = ("result",)
    result: type[Told_co]

    def __new__(cls, name: str, result: type[Told_co]) -> Verb[Ask_contra, Told_co]:
        """`name`: as agent.main.VERBS has it."""
        verb = super().__new__(cls, name)
        verb.result = result
        return verb


class Look(str, Generic[Ask_contra, Told_co]):
    """What the verb `facts` may be asked: the scheme's name, and the TypedDict of its fact."""

    __slots__ = ("fact",)
    fact: type[Told_co]

    def __new__(cls, scheme: str, fact: type[Told_co]) -> Look[Ask_contra, Told_co]:
        """`scheme`: as agent.facts.OBSERVERS has it."""
        look = super().__new__(cls, scheme)
        look.fact = fact
        return look
