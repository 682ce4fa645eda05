"""What is on this node: one answer per query, all in one round trip. Looking changes nothing that matters."""

from __future__ import annotations

import gc
import importlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.lane.records import runs, shelf_of
from sparkbuild.agent.machine.procs import Glance
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.wire.nodes import FactsAsk, FactsResult, Query
    from sparkbuild.agent.wire.verbs import Absent, Placed

    class Request(FactsAsk, Placed):
        """With where."""

    class Shared(Placed, total=False):
        """What all looks of one moment share."""

        glance: Glance
        shelf: Shelf

    class PlacedQuery(Query, Shared):
        """A question, as what is looked at gets it."""


# scheme of the goal (or what else is asked) -> module of this folder; each has observe(query) -> fact
OBSERVERS = {
    "artifact": "store.artifacts",
    "source": "git.exported",
    "archive": "image.archives",
    "image": "image.look",
    "staged": "stage.verify",
    "export": "export.look",
    "lane": "lane.look",
    "node": "node",
    "preflight": "lane.preflight",
    "network": "machine.network",
    "listener": "machine.listener",
    "pruned": "image.prune",
    "room": "machine.room",
    "inventory": "evict.inventory",
}
WAITING = {"node", "preflight"}  # for docker, for peers: others are looked at meanwhile

ON_DISKS = {"staged", "export"}  # folders that somebody named, each on a disk that may hang
# seconds for running lanes, most of which answer in less, before the disks are asked: two threads that ask the kernel
# many small things wait for each other most of the time
_HEAD_START = 0.02
INTO = {"staged", "export"}  # what is made in a folder that somebody names: a look says what making it would end with


def run(request: Request, reporter: Reporter) -> FactsResult:
    """See FACTS. A query that fails gives an Absent: one bad folder must not hide the rest of the node.

    Running lanes are asked at the same time as each other: one that hangs must not hold up the rest.
    """
    del reporter
    gc.disable()  # one look and out; what is allocated is the answer
    if any(query.get("hurry") for query in request["queries"]):
        patience.hurry()
    shared: Shared = {"store": request["store"], "docker": request.get("docker", ""), "glance": Glance()}
    if any(query["scheme"] == "lane" and query.get("runtime") == "docker" for query in request["queries"]):
        shared["shelf"] = shelf_of(request)  # docker is asked when the first lane wants to know
    facts: list[object] = [None] * len(request["queries"])
    lanes: list[threading.Thread] = []
    waiting: list[threading.Thread] = []

    def look(index: int, query: Query) -> None:
        facts[index] = _observe({**shared, **query})

    quiet: list[tuple[int, Query]] = []
    on_disks: list[tuple[int, Query]] = []
    for index, query in enumerate(request["queries"]):
        running = query["scheme"] == "lane" and runs(request["store"], query["recipe"])
        if running or query["scheme"] in WAITING:
            thread = threading.Thread(target=look, args=(index, query), daemon=True)
            thread.start()
            (lanes if running else waiting).append(thread)
        else:
            (on_disks if query["scheme"] in ON_DISKS else quiet).append((index, query))
    for index, query in quiet:  # while the lanes answer
        look(index, query)
    deadline = time.monotonic() + _HEAD_START
    for thread in lanes:
        thread.join(max(0.0, deadline - time.monotonic()))
    outcomes = patience.each(
        [(partial(_observe, {**shared, **query}), _folder(shared, query)) for _, query in on_disks]
    )
    for (index, _), outcome in zip(on_disks, outcomes, strict=True):
        facts[index] = _fact(outcome)
    for thread in (*lanes, *waiting):
        thread.join()
    return {"facts": facts}


def _folder(shared: Shared, query: Query) -> str:
    dst = query.get("dst")
    return inside(shared["store"], dst) if isinstance(dst, str) else ""


def _fact(outcome: patience.Outcome) -> object:
    if isinstance(outcome.error, patience.SilentError):
        return {"present": False, "hung": outcome.error.fields}
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _observe(query: PlacedQuery) -> object:
    observe = importlib.import_module(f"sparkbuild.agent.{OBSERVERS[query['scheme']]}").observe
    try:
        return observe(query)
    except OSError as error:
        return _failed(error, query)
    except patience.SilentError as error:  # of a look within this one
        return {"present": False, "hung": error.fields}
    except AgentError as error:
        text = "; ".join(part for part in (error.fields["what"], error.fields["next"]) if part)
        return {"present": False, "problem": text}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return {"present": False, "problem": f"{type(error).__name__}: {error}"}


def _failed(error: OSError, query: PlacedQuery) -> Absent:
    """What is known of a thing that may not be looked at, or cannot be."""
    from sparkbuild.agent.machine.oserrors import fields_of  # noqa: PLC0415 - only for a message

    fields = fields_of(error, query["store"])
    text = ": ".join(part for part in (fields["what"], fields["where"]) if part)
    text += f" ({fields['found']})" if fields["found"] else ""
    if query["scheme"] in INTO:  # making it would end with the same
        return {"present": False, "problem": text, "refused": {**fields, "part": "dst"}}
    return {"present": False, "problem": "; ".join(part for part in (text, fields["next"]) if part)}
