"""One chat completion, not streamed, at temperature 0: what a gate asks, what comes back, and how it is graded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.errors import GateError
from sparkbuild.nodes.engine import SilentError, ask
from sparkbuild.workspace.shapes.schema import Gate


class ToolCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it; `arguments` is JSON text, which may not parse."""

    name: str
    arguments: str


class Reply(msgspec.Struct, frozen=True):
    """What came back. `reasoning` is what the server put beside the content, under either of the two names in use."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""


class GateResult(msgspec.Struct, frozen=True):
    """One gate's outcome. `message`: what is wrong, "" when it passed; `answer`: what the model said, cut."""

    id: str
    kind: str
    ok: bool
    answer: str
    expected: str
    message: str = ""
    seconds: float = 0.0


def question(gate: Gate, model_id: str) -> dict[str, object]:
    """What is asked by every kind of gate."""
    messages = [{"role": "user", "content": gate.prompt}]
    return {"model": model_id, "messages": messages, "max_tokens": gate.max_tokens}


def budget(max_tokens: int) -> str:
    """What to say of a reply that used up its tokens before it said anything."""
    return f"the answer did not fit max_tokens={max_tokens}: raise it; this is not garble"


def chat(base_url: str, body: Mapping[str, object], timeout: float) -> Reply:
    """POST `body` at temperature 0, within `timeout` seconds in all; GateError in one line when no completion comes."""
    try:
        heard = ask(
            base_url, "/v1/chat/completions", patience=timeout, body={"temperature": 0, "stream": False, **body}
        )
    except SilentError as error:
        if error.late:
            raise GateError(f"no answer within {timeout:g} s") from None
        raise GateError(f"the server does not answer: {error}") from None
    if heard.status != 200:
        raise GateError(f"the server answered with HTTP {heard.status}: {heard.text or '(no text)'}")
    try:
        payload = heard.json()
    except ValueError:
        raise GateError(f"the server's answer is not JSON: {heard.text or '(empty)'}") from None
    return read_reply(payload)


def read_reply(payload: Any) -> Reply:
    """Take the parts out of a chat completion; raises GateError naming what does not have the right shape."""
    try:
        choice = payload["choices"][0]
        message = choice["message"]
        calls = tuple(_tool_call(call) for call in message.get("tool_calls") or ())
        return Reply(
            content=_text(message.get("content")),
            reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
            tool_calls=calls,
            finish_reason=_text(choice.get("finish_reason")),
        )
    except (KeyError, IndexError, TypeError, AttributeError):
        shown = one_line(msgspec.json.encode(payload).decode())
        raise GateError(f"the server's answer is not a chat completion: {shown}") from None


def _tool_call(call: Any) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some servers hand the object over unquoted
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(_text(function["name"]), arguments)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise TypeError(value)
