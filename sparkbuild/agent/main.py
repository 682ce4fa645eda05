"""Entry of the agent: `python -I agent VERB`, the request on stdin; with `serve`, many requests."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sparkbuild.agent.wire.protocol import SERVE, AgentError, Reporter, end_with_stdin

# verb -> module of this folder; each module has run(request, reporter) -> result fields
VERBS = {
    "facts": "facts",
    "fetch": "store.fetch",
    "venv": "image.venv",
    "assemble": "image.assemble",
    "build": "image.build",
    "context": "image.context",
    "export": "image.export",
    "repro": "image.repro",
    "hold": "lane.hold",
    "prepare": "lane.prepare",
    "record": "lane.container",
    "stage": "stage.stage",
    "verify": "stage.verify",
    "scrub": "stage.scrub",
    "evict": "evict.evict",
    "launch": "lane.launch",
    "note": "lane.note",
    "watch": "lane.watch",
    "stop": "lane.stop",
    "tail": "lane.tail",
    "tokenizer": "lane.tokenizer",
    "dial": "docker.dial",
    "put": "store.put",
    "source": "git.export",
    "pins": "git.pins",
    "relay": "store.relay",
    "give": "peers.give",
    "pull": "docker.pull",
    "describe": "image.describe",
    "prune": "image.prune",
    "adopt": "docker.adopt",
    "linktree": "export.make",
}


def _read_request(line: bytes) -> dict[str, Any]:
    # from the descriptor: a buffered reader would swallow what `end_with_stdin` waits for
    data = bytearray(line)
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


def _alone(verb: str) -> int:
    code = main([verb])
    sys.stdout.flush()
    return code


def _load(words: Sequence[str]) -> None:
    """Import the module of a verb, and those of what it is asked to look at."""
    try:
        module = _module(words[0])
        for scheme in words[1:]:
            importlib.import_module(f"sparkbuild.agent.{module.OBSERVERS[scheme]}")
    except BaseException:  # noqa: BLE001 - the request that needs it says so
        return


def main(argv: list[str] | None = None, line: bytes = b"") -> int:
    """Run one verb; returns the exit code. `line` is the request where it was read already, b"" to read it now.

    A module with OWNS_STDIN reads what follows the request itself, and must end when stdin does; one whose `run` gives
    None has said all that there is to say.
    """
    verb = (sys.argv[1:] if argv is None else argv)[0]
    if verb == SERVE:
        from sparkbuild.agent import serve  # noqa: PLC0415 - 2 ms, and a first look goes without

        return serve.run(line, _alone, _load)
    os.umask(os.umask(0o022) | 0o022)  # with 000 others could write to the store, and put links into it
    reporter = Reporter()
    request: dict[str, Any] = {}
    try:
        request = _read_request(line)
        module = _module(verb)
        if not getattr(module, "OWNS_STDIN", False):
            end_with_stdin()
        result = module.run(request, reporter)
    except AgentError as error:
        reporter.emit("error", **error.fields)
        return _ended(1)
    except OSError as error:
        from sparkbuild.agent.machine import oserrors  # noqa: PLC0415 - only for a message

        reporter.emit("error", **oserrors.fields_of(error, str(request.get("store", ""))))
        return _ended(1)
    if result is not None:
        reporter.emit("result", **result)
    return _ended(0)


def _ended(code: int) -> int:
    patience = sys.modules.get("sparkbuild.agent.disk.patience")
    if patience is not None and patience.hangs():
        patience.leave(code)
    return code
