"""Does the engine really answer: its health, its model ids, and one streamed completion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.nodes.engine import Heard, OnLine, SilentError, ask

PROMPT = "Say hello."
TOKENS = 16
_LATER = frozenset({408, 409, 425, 429})  # 4xx that another time may have another answer


class Answer(msgspec.Struct, frozen=True):
    """One streamed answer: seconds to its first token, and its text."""

    ttft: float
    text: str


class NoAnswer(Exception):  # noqa: N818 - a state of a starting engine, most often not an error
    """Not ready yet, or wrong; the text says which. `wrong`: it is another model; `next`, when it is not "": waiting
    longer will not help, and this might; `late`: the time was over before it had answered.
    """

    def __init__(self, text: str, *, wrong: bool = False, next: str = "", late: bool = False) -> None:  # noqa: A002 - as in SparkbuildError
        super().__init__(text)
        self.wrong = wrong
        self.next = next
        self.late = late


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    """`GET /v1/models` of the API of OpenAI, as far as it is read."""

    data: list[_Model]


class _Delta(msgspec.Struct):
    """A piece of an answer; engines that show how they reason have it under one of two more names."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    """One `data:` line of a streamed chat completion. `error`: what engines send when they fail after the 200."""

    choices: list[_Choice] | None = None
    error: Any = None


Shape = TypeVar("Shape")


def check(base: str, model_id: str, *, patience: float, meanwhile: Callable[[], None] = lambda: None) -> Answer:
    """Run all checks in order against the engine at `base`, within `patience` seconds in all; raises NoAnswer, and what
    `meanwhile` raises, which is called several times a second.
    """
    deadline = time.monotonic() + patience

    def asked(path: str, body: Mapping[str, object] | None = None, on_line: OnLine | None = None) -> Heard:
        left = max(0.1, deadline - time.monotonic())
        return ask(base, path, patience=left, body=body, on_line=on_line, meanwhile=meanwhile)

    try:
        health = asked("/health")
        if health.status not in {200, 404}:  # not all engines have it; those that do have it answer
            raise _refused("/health", health)
        models = asked("/v1/models")
        if health.status == models.status == 404:
            raise NoAnswer("/health and /v1/models answer 404", next=_OTHER)
        if models.status != 200:
            raise _refused("/v1/models", models)
        if models.kind == "text/html":
            raise NoAnswer(f"/v1/models answers with a page: {models.text[:100]}", next=_OTHER)
        ids = [model.id for model in _read("/v1/models", models.body, _Models).data]
        if model_id not in ids:
            told = one_line(", ".join(ids)) or "no model"
            raise NoAnswer(f"it serves {told}, not {model_id}", wrong=True)
        return _stream(asked, model_id)
    except SilentError as error:
        raise NoAnswer(str(error), next=_OTHER if error.foreign else "", late=error.late) from error


_OTHER = "look at serve.command and serve.port: what listens there is no engine with the API of OpenAI"
_KEY = "the engine wants a key, and none is sent: start it without one (--api-key, VLLM_API_KEY)"


def _refused(what: str, heard: Heard) -> NoAnswer:
    """An answer that is not 200: for good when asking again would have the same answer."""
    text = f"{what} answers {heard.status}{f': {heard.text[:300]}' if heard.text else ''}"
    if heard.status in {401, 403}:
        return NoAnswer(text, next=_KEY)
    is_final = what != "/health" and 400 <= heard.status < 500 and heard.status not in _LATER
    return NoAnswer(text, next="mend in the recipe what the engine says" if is_final else "")


def _stream(asked: Callable[[str, Mapping[str, object], OnLine], Heard], model_id: str) -> Answer:
    body = {
        "model": model_id,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }
    start = time.monotonic()
    first = 0.0
    text: list[str] = []

    def take(line: str) -> None:
        nonlocal first
        if not line.startswith("data:") or line.removeprefix("data:").strip() == "[DONE]":
            return
        chunk = _read("a streamed completion", line.removeprefix("data:"), _Chunk)
        if chunk.error:
            told = chunk.error.get("message", chunk.error) if isinstance(chunk.error, dict) else chunk.error
            raise NoAnswer(f"a streamed completion ends with an error of the engine: {one_line(str(told), 300)}")
        for choice in chunk.choices or ():
            delta = choice.delta or _Delta()
            # a role-only first chunk is no token; a reasoning token is one
            piece = delta.content or delta.reasoning_content or delta.reasoning
            if piece:
                first = first or time.monotonic()
                text.append(piece)

    heard = asked("/v1/chat/completions", body, take)
    if heard.status != 200:
        raise _refused("a chat completion", heard)
    if not first:
        raise NoAnswer("a streamed completion held no token")
    return Answer(first - start, one_line("".join(text)))


def _read(what: str, text: str | bytes, shape: type[Shape]) -> Shape:
    """The JSON in what an engine answered, as `shape`; raises NoAnswer, which says what of it is otherwise."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # among them numbers of 5,000 digits, and bytes that are no UTF-8
        shown = text if isinstance(text, str) else text[:400].decode(errors="replace")
        raise NoAnswer(f"{what} answers with something that is not JSON: {one_line(shown, 100)}") from error
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # half of a surrogate pair is no text to msgspec
        raise NoAnswer(f"{what} answers in another shape: {one_line(str(error), 200)}") from error
