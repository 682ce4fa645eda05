"""Nodes that give bytes to other nodes, on the wire."""

from typing import TypedDict

from sparkbuild.agent.wire.store import Place
from sparkbuild.agent.wire.verbs import Endless, Placed, Verb


class Peers(TypedDict):
    """Nodes that give the same, the best first."""

    token: str
    sources: list[Place]


class GiveAsk(TypedDict):
    """`listen` on these addresses. `expected`: the folder is about to be staged with this key."""

    dst: str
    key: str
    token: str
    listen: list[str]
    expected: bool


class GiveRequest(GiveAsk, Placed):
    """To the agent."""


GIVE: Verb[GiveAsk, Endless] = Verb("give", Endless)
