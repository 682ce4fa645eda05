"""One chat completion, not streamed, at temperature 0: what a gate asks and what comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from sparkbuild.core.errors import GateError
from sparkbuild.core.interrupt import cancel
from sparkbuild.gates.result import cut

T = TypeVar("T")


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


def chat(base_url: str, body: Mapping[str, Any], timeout: float) -> Reply:
    """POST `body` to `<base_url>/v1/chat/completions` at temperature 0. `timeout` in seconds, for the whole request.

    Raises GateError in one line when the server does not answer, in time, with status 200 and a completion.
    """
    import httpx  # noqa: PLC0415 - 60 ms: not for those who only list tasks

    url = f"{base_url.rstrip('/')}/v1/chat/completions"

    def post() -> httpx.Response:
        # Proxies are for the internet, not for the lane's own network.
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            return client.post(url, json={"temperature": 0, "stream": False, **body})

    try:
        response = _bounded(post, timeout)
    except (httpx.TimeoutException, TimeoutError):
        raise GateError(f"no answer within {timeout:g} s") from None
    except httpx.HTTPError as error:
        raise GateError(f"the server does not answer: {cut(str(error) or type(error).__name__)}") from None
    if response.status_code != httpx.codes.OK:
        raise GateError(f"the server answered with HTTP {response.status_code}: {cut(response.text) or '(no text)'}")
    try:
        payload = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        raise GateError(f"the server's answer is not JSON: {cut(response.text) or '(empty)'}") from None
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
        shown = cut(msgspec.json.encode(payload).decode())
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


def _bounded(call: Callable[[], T], timeout: float) -> T:
    """Run a blocking call so that ctrl-C ends the wait at once, and a server that trickles bytes cannot stretch it."""
    box: list[T | BaseException] = []

    def run() -> None:
        try:
            box.append(call())
        except BaseException as error:  # noqa: BLE001 - handed over to the waiting thread
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    waited = 0.0
    while thread.is_alive():
        thread.join(0.1)
        cancel.check()
        waited += 0.1
        if waited > timeout + 1:  # the client's own timeout, per read, speaks first
            raise TimeoutError
    outcome = box[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
