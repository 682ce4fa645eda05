"""On which addresses of this node a port is listened on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.machine.procs import Glance

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import ListenerAsk, ListenerFact

    class Query(ListenerAsk, total=False):
        """With what all looks of one moment share."""

        glance: Glance


_ANY = {"0.0.0.0": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}  # noqa: S104 - recognised, not bound to


def observe(query: Query) -> ListenerFact:
    """See LISTENER."""
    return {"addresses": addresses(int(query["port"]), query.get("glance") or Glance())}


def addresses(port: int, glance: Glance) -> list[str]:
    """Addresses of this node that lead to what listens on the port: those it is bound to, loopback where it is bound to
    all. Names that others have for this node mean nothing here.
    """
    return list(dict.fromkeys(one for address in glance.bound(port) for one in _ANY.get(address, (address,))))
