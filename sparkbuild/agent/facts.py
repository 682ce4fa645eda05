"""What is on this node: one answer per query, all in one round trip. Looking changes nothing that matters."""

from __future__ import annotations

import importlib
from typing import Any

from sparkbuild.agent.protocol import Reporter

# scheme of the goal -> module of this folder; each has observe(query) -> fact
OBSERVERS = {"artifact": "fetch", "image": "venv", "staged": "verify", "lane": "lanes"}


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "queries": [{"scheme", ...}]}; result {"facts": [...]} in the same order.

    A query that fails gives {"present": false, "problem": text}: one bad folder must not hide the rest of the node.
    """
    del reporter
    return {"facts": [_observe({"store": request["store"], **query}) for query in request["queries"]]}


def _observe(query: dict[str, Any]) -> dict[str, Any]:
    module = importlib.import_module(f"sparkbuild.agent.{OBSERVERS[query['scheme']]}")
    try:
        fact: dict[str, Any] = module.observe(query)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"present": False, "problem": f"{type(error).__name__}: {error}"}
    return fact
