"""What is on this node: one answer per query, all in one round trip. Looking changes nothing that matters."""

from __future__ import annotations

import gc
import importlib
import threading
from types import ModuleType
from typing import Any

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.lane.records import runs, shelf_of
from sparkbuild.agent.machine.procs import Glance
from sparkbuild.agent.wire.protocol import AgentError, Reporter

# scheme of the goal (or what else is asked) -> module of this folder; each has observe(query) -> fact
OBSERVERS = {
    "artifact": "store.artifacts",
    "source": "git.exported",
    "archive": "image.archives",
    "image": "image.look",
    "staged": "stage.verify",
    "export": "export.look",
    "lane": "lane.records",
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
INTO = {"staged", "export"}  # what is made in a folder that somebody names: a look says what making it would end with


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "docker", "queries": [{"scheme", "hurry"?, ...}]}; result {"facts": [...]} in the same order.
    `hurry`: see patience.hurry.

    A query that fails gives {"present": false, "problem": text, "refused"?: the fields of an error of the system}: one
    bad folder must not hide the rest of the node. One whose disk does not answer gives {"present": false, "hung": the
    fields of that error}: whether it is there cannot be said.
    Running lanes are asked at the same time as each other: one that hangs must not hold up the rest.
    """
    del reporter
    gc.disable()  # one look and out; what is allocated is the answer
    if any(query.get("hurry") for query in request["queries"]):
        patience.hurry()
    shared = {"store": request["store"], "docker": request.get("docker", ""), "glance": Glance()}
    if any(query["scheme"] == "lane" and query.get("runtime") == "docker" for query in request["queries"]):
        shared["shelf"] = shelf_of(request)  # docker is asked when the first lane wants to know
    facts: list[dict[str, Any]] = [{}] * len(request["queries"])
    threads = []

    def look(index: int, query: dict[str, Any]) -> None:
        facts[index] = _observe({**shared, **query})

    quiet = []
    for index, query in enumerate(request["queries"]):
        running = query["scheme"] == "lane" and runs(request["store"], query["recipe"])
        if running or query["scheme"] in WAITING:
            threads.append(threading.Thread(target=look, args=(index, query), daemon=True))
            threads[-1].start()
        else:
            quiet.append((index, query))
    for index, query in quiet:  # while the lanes answer
        look(index, query)
    for thread in threads:
        thread.join()
    return {"facts": facts}


def _observe(query: dict[str, Any]) -> dict[str, Any]:
    module = importlib.import_module(f"sparkbuild.agent.{OBSERVERS[query['scheme']]}")
    try:
        fact: dict[str, Any] = _bounded(module, query) if query["scheme"] in ON_DISKS else module.observe(query)
    except OSError as error:
        return _failed(error, query)
    except patience.SilentError as error:
        return {"present": False, "hung": error.fields}
    except AgentError as error:
        text = "; ".join(part for part in (error.fields["what"], error.fields["next"]) if part)
        return {"present": False, "problem": text}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return {"present": False, "problem": f"{type(error).__name__}: {error}"}
    return fact


def _bounded(module: ModuleType, query: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = patience.bounded(lambda: module.observe(query), about=inside(query["store"], query["dst"]))
    return found


def _failed(error: OSError, query: dict[str, Any]) -> dict[str, Any]:
    """What is known of a thing that may not be looked at, or cannot be."""
    from sparkbuild.agent.machine.oserrors import fields_of  # noqa: PLC0415 - only for a message

    fields = fields_of(error, query["store"])
    text = ": ".join(part for part in (fields["what"], fields["where"]) if part)
    text += f" ({fields['found']})" if fields["found"] else ""
    if query["scheme"] in INTO:  # making it would end with the same
        return {"present": False, "problem": text, "refused": {**fields, "part": "dst"}}
    return {"present": False, "problem": "; ".join(part for part in (text, fields["next"]) if part)}
