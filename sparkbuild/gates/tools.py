"""The tool gate: the model must make exactly one call, of the right tool, with the right arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.gates.chat import GateResult, Reply, budget, question
from sparkbuild.workspace.shapes.schema import ToolGate


def body(gate: ToolGate, model_id: str) -> dict[str, object]:
    """The request. `tool_choice` is auto: "required" tests the server's grammar rather than the model."""
    function = {"name": gate.tool, "description": gate.description, "parameters": gate.parameters}
    tools = [{"type": "function", "function": function}]
    return {**question(gate, model_id), "tools": tools, "tool_choice": "auto"}


def grade(gate: ToolGate, reply: Reply) -> GateResult:
    """Judge a reply."""
    message = _wrong(gate, reply)
    calls = ", ".join(f"{call.name}({call.arguments})" for call in reply.tool_calls)
    answer = calls or reply.content or reply.reasoning
    expected = f"{gate.tool}({_json(gate.arguments)})"
    return GateResult(gate.id, "tool", not message, one_line(answer), expected, message)


def _wrong(gate: ToolGate, reply: Reply) -> str:
    """What is wrong with the reply, "" when nothing is."""
    if not reply.tool_calls:
        return _no_call(gate, reply)
    if len(reply.tool_calls) > 1:
        return f"{len(reply.tool_calls)} tool calls instead of one"
    call = reply.tool_calls[0]
    if call.name != gate.tool:
        return f"wrong tool: {call.name}"
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return "the arguments are not a JSON object"
    return _difference(gate.arguments, arguments)


def _no_call(gate: ToolGate, reply: Reply) -> str:
    said = bool(reply.content.strip())
    if reply.finish_reason == "length":
        cut_off = f"no tool call before the answer was cut off at max_tokens={gate.max_tokens}"
        return cut_off if said else budget(gate.max_tokens)
    return "no tool call, but text" if said else "no tool call, and no text either"


def _difference(wanted: Mapping[str, object], found: Mapping[str, object]) -> str:
    parts = [f"{name} is missing" for name in wanted if name not in found]
    parts += [f"{name} was not asked for" for name in found if name not in wanted]
    parts += [
        f"{name} is {_json(found[name])} instead of {_json(value)}"
        for name, value in wanted.items()
        if name in found and not same(value, found[name])
    ]
    return f"wrong arguments: {'; '.join(parts)}" if parts else ""


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values: 3 is 3.0, but neither true is 1 nor "3" is 3; the order of keys does not count."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
