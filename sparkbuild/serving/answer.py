"""Does the engine really answer: its health, its model ids, and one streamed completion."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import httpx

PROMPT = "Say hello."
TOKENS = 16


class Answer(msgspec.Struct, frozen=True):
    """One streamed answer: seconds to its first token, and its text."""

    ttft: float
    text: str


class NoAnswer(Exception):  # noqa: N818 - a state of a starting engine, most often not an error
    """Not ready yet, or wrong; the text says which. `wrong`: waiting longer will not help."""

    def __init__(self, text: str, *, wrong: bool = False) -> None:
        super().__init__(text)
        self.wrong = wrong


def check(client: httpx.Client, model_id: str) -> Answer:
    """Run all checks in order against a client whose base_url is the engine's root; raises NoAnswer."""
    import httpx  # noqa: PLC0415 - costs 70 ms, and listing tasks must not pay for it

    try:
        status = client.get("/health").status_code
        if status != 200:
            raise NoAnswer(f"/health answers {status}")
        ids = [str(entry["id"]) for entry in client.get("/v1/models").raise_for_status().json()["data"]]
        if model_id not in ids:
            raise NoAnswer(f"it serves {', '.join(ids) or 'no model'}, not {model_id}", wrong=True)
        return _stream(client, model_id)
    except httpx.HTTPError as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoAnswer(f"an answer of an unknown shape: {error}") from error


def _stream(client: httpx.Client, model_id: str) -> Answer:
    body = {
        "model": model_id,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    start = time.monotonic()
    first = 0.0
    text = []
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            response.read()
            raise NoAnswer(f"a chat completion answers {response.status_code}: {response.text[:300]}")
        for line in response.iter_lines():
            if not line.startswith("data:") or line.removeprefix("data:").strip() == "[DONE]":
                continue
            chunk = json.loads(line.removeprefix("data:"))
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                # a role-only first chunk is no token; a reasoning token is one
                piece = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
                if piece:
                    first = first or time.monotonic()
                    text.append(piece)
    if not first:
        raise NoAnswer("a streamed completion held no token")
    return Answer(first - start, "".join(text))
