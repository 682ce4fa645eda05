"""Entry of the agent: `python -I agent VERB`, the request on stdin."""

from __future__ import annotations

import importlib
import json
import os
import sys
from types import ModuleType
from typing import Any

from sparkbuild.agent.protocol import AgentError, Reporter, end_with_stdin

# verb -> module of this folder; each module has run(request, reporter) -> result fields
VERBS = {
    "facts": "facts",
    "fetch": "fetch",
    "venv": "venv",
    "assemble": "assemble",
    "build": "build",
    "context": "context",
    "export": "export",
    "repro": "repro",
    "hold": "hold",
    "prepare": "prepare",
    "record": "record",
    "stage": "stage",
    "verify": "verify",
    "scrub": "scrub",
    "evict": "evict",
    "launch": "launch",
    "note": "note",
    "watch": "watch",
    "stop": "stop",
    "tail": "tail",
    "dial": "dial",
    "put": "put",
    "source": "gitexport",
    "pins": "gitpins",
    "relay": "relay",
    "give": "give",
    "pull": "pull",
    "describe": "describe",
    "prune": "oldimages",
    "adopt": "adopt",
    "linktree": "linktree",
}


def _read_request(data: bytes) -> dict[str, Any]:
    # from the descriptor: a buffered reader would swallow what `end_with_stdin` waits for
    while not data.endswith(b"\n"):
        block = os.read(0, 65536)
        if not block:
            break
        data += block
    request = json.loads(data or b"{}")
    if not isinstance(request, dict):
        raise AgentError("bad request", found=type(request).__name__, wanted="a JSON object")
    return request


def _module(verb: str) -> ModuleType:
    if verb not in VERBS:
        raise AgentError(f"the agent has no verb {verb!r}", wanted=", ".join(VERBS))
    return importlib.import_module(f"sparkbuild.agent.{VERBS[verb]}")


def main(argv: list[str] | None = None, line: bytes = b"") -> int:
    """Run one verb; returns the exit code. `line` is the request where it was read already, b"" to read it now.

    A module with OWNS_STDIN reads what follows the request itself, and must end when stdin does; one whose `run` gives
    None has said all that there is to say.
    """
    verb = (sys.argv[1:] if argv is None else argv)[0]
    reporter = Reporter()
    request: dict[str, Any] = {}
    try:
        request = _read_request(line)
        module = _module(verb)
        if not getattr(module, "OWNS_STDIN", False):
            end_with_stdin(request.get("patience"))
        result = module.run(request, reporter)
    except AgentError as error:
        reporter.emit("error", **error.fields)
        return 1
    except OSError as error:
        from sparkbuild.agent import oserrors  # noqa: PLC0415 - only for a message

        reporter.emit("error", **oserrors.fields_of(error, str(request.get("store", ""))))
        return 1
    if result is not None:
        reporter.emit("result", **result)
    return 0
