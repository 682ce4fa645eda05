"""What really answers at an address: asked before a bench, since a bench of the wrong machine looks like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.bench.manifest import Engine
from sparkbuild.core.errors import NotReadyError
from sparkbuild.nodes.engine import SilentError, ask

TIMEOUT = 20.0  # seconds for a whole answer; a loaded engine on a small CPU takes a few


def identify(base_url: str, model_id: str) -> Engine:
    """Ask `/v1/models` for the ids and `/version`, `/props` or `/get_server_info` for the engine's version.

    Raises NotReadyError when nobody answers, the answer is no list of models, or `model_id` is not in it.
    """
    base_url = base_url.rstrip("/")

    def said(path: str) -> Any:
        heard = ask(base_url, path, patience=TIMEOUT)
        return heard.json() if heard.status == 200 else None

    def hinted(path: str) -> Any:
        try:
            return said(path)
        except ValueError:
            return None  # some answer with a page to whatever they do not know

    try:
        models = said("/v1/models")
        told = {path: hinted(path) for path in ("/version", "/props", "/get_server_info")}
    except SilentError as error:
        raise NotReadyError("the lane does not answer", where=base_url, found=str(error), next="doit status") from error
    except ValueError as error:
        found = one_line(str(error))
        raise NotReadyError("what answers is no model server", where=base_url, found=found) from error
    return read(base_url, model_id, models, told)


def read(base_url: str, model_id: str, models: Any, told: Mapping[str, object]) -> Engine:
    """Judge the answers; `told` maps the pages that tell a version to what they said, None where there is none."""
    listed = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    ids = tuple(str(entry["id"]) for entry in entries if "id" in entry)
    if model_id not in ids:
        found = one_line(", ".join(ids)) or "no model"
        raise NotReadyError(
            f"{base_url} does not serve {model_id}", where=f"{base_url}/v1/models", found=found, wanted=model_id
        )
    owner = next((str(entry.get("owned_by") or "") for entry in entries if entry.get("id") == model_id), "")
    if isinstance(told.get("/get_server_info"), dict):
        owner = "sglang"  # it alone has that page; it may serve under any owner's name
    for path, field in (("/version", "version"), ("/props", "build_info"), ("/get_server_info", "version")):
        answer = told.get(path)
        if isinstance(answer, dict) and answer.get(field):
            return Engine(base_url, model_id, ids, owner, str(answer[field]), path)
    return Engine(base_url, model_id, ids, owner, "", "/v1/models")
