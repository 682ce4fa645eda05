"""What really answers at an address: asked before a bench, since a bench of the wrong machine looks like any other."""

from __future__ import annotations

from typing import Any

from sparkbuild.bench.manifest import Engine
from sparkbuild.core.errors import NotReadyError

TIMEOUT = 20.0  # seconds per question; a loaded engine on a small CPU takes a few


def identify(base_url: str, model_id: str) -> Engine:
    """Ask `/v1/models` for the ids and `/version` or `/props` for the engine's version.

    Raises NotReadyError when nobody answers, the answer is no list of models, or `model_id` is not in it.
    """
    import httpx  # noqa: PLC0415 - 60 ms, only when a bench runs

    base_url = base_url.rstrip("/")
    with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:

        def ask(path: str) -> Any:
            response = client.get(f"{base_url}{path}")
            return response.json() if response.status_code == httpx.codes.OK else None

        try:
            models = ask("/v1/models")
            told = {path: ask(path) for path in ("/version", "/props")}
        except httpx.HTTPError as error:
            raise NotReadyError(
                "the lane does not answer", where=base_url, found=str(error) or type(error).__name__, next="doit status"
            ) from error
        except ValueError as error:
            raise NotReadyError("what answers is no model server", where=base_url, found=str(error)) from error
    return read(base_url, model_id, models, told)


def read(base_url: str, model_id: str, models: Any, told: dict[str, Any]) -> Engine:
    """Judge the answers; `told` maps /version and /props to what they said, None when they are not there."""
    listed = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    ids = tuple(str(entry["id"]) for entry in entries if "id" in entry)
    if model_id not in ids:
        found = ", ".join(ids) or "no model"
        raise NotReadyError(
            f"{base_url} does not serve {model_id}", where=f"{base_url}/v1/models", found=found, wanted=model_id
        )
    owner = next((str(entry.get("owned_by") or "") for entry in entries if entry.get("id") == model_id), "")
    for path, field in (("/version", "version"), ("/props", "build_info")):
        answer = told.get(path)
        if isinstance(answer, dict) and answer.get(field):
            return Engine(base_url, model_id, ids, owner, str(answer[field]), path)
    return Engine(base_url, model_id, ids, owner, "", "/v1/models")
