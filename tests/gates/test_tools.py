from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.gates.chat import Reply, ToolCall
from sparkbuild.gates.tools import body, grade, same
from sparkbuild.workspace.shapes.schema import ToolGate

GATE = ToolGate(
    id="weather",
    prompt="Weather in Paris?",
    tool="get_weather",
    description="Weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
    arguments={"city": "Paris", "days": 3},
    max_tokens=32,
)
GOOD = ToolCall("get_weather", '{"days": 3.0, "city": "Paris"}')


def calls(*made: ToolCall, content: str = "", finish: str = "tool_calls") -> Reply:
    return Reply(content=content, tool_calls=made, finish_reason=finish)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (calls(GOOD), ""),
        (calls(GOOD, content="Let me look."), ""),
        (calls(ToolCall("get_time", GOOD.arguments)), "wrong tool: get_time"),
        (
            calls(ToolCall("get_weather", '{"city": "paris", "days": 3}')),
            'wrong arguments: city is "paris" instead of "Paris"',
        ),
        (calls(ToolCall("get_weather", '{"city": "Paris"}')), "wrong arguments: days is missing"),
        (
            calls(ToolCall("get_weather", '{"city": "Paris", "days": "3", "unit": "C"}')),
            'wrong arguments: unit was not asked for; days is "3" instead of 3',
        ),
        (calls(ToolCall("get_weather", "[]")), "the arguments are not a JSON object"),
        (calls(ToolCall("get_weather", "null")), "the arguments are not a JSON object"),
        (calls(GOOD, GOOD), "2 tool calls instead of one"),
        (Reply(content="It is sunny.", finish_reason="stop"), "no tool call, but text"),
        (Reply(finish_reason="stop"), "no tool call, and no text either"),
        (
            Reply(reasoning="I should call", finish_reason="length"),
            "the answer did not fit max_tokens=32: raise it; this is not garble",
        ),
        (
            Reply(content="I should call", finish_reason="length"),
            "no tool call before the answer was cut off at max_tokens=32",
        ),
    ],
)
def test_grading(reply: Reply, message: str):
    result = grade(GATE, reply)
    assert result.message == message
    assert result.ok is (message == "")


@pytest.mark.parametrize("arguments", ['{"city": "Paris"', "", "city=Paris"])
def test_arguments_that_are_not_json(arguments: str):
    result = grade(GATE, calls(ToolCall("get_weather", arguments)))
    assert result.message.startswith("the arguments are not JSON: ")
    assert result.answer == f"get_weather({arguments})"


def test_what_was_said_is_shown():
    assert grade(GATE, Reply(content="It is sunny.", finish_reason="stop")).answer == "It is sunny."
    assert grade(GATE, calls(GOOD)).answer == 'get_weather({"days": 3.0, "city": "Paris"})'
    assert grade(GATE, calls(GOOD)).expected == 'get_weather({"city":"Paris","days":3})'


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (3, 3.0, True),
        (True, 1, False),
        (False, 0, False),
        (None, None, True),
        (None, False, False),
        ("3", 3, False),
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2.0], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ((1, 2), [1, 2], True),
        ([1], 1, False),
    ],
)
def test_equality_of_json_values(a: Any, b: Any, equal: bool):
    assert same(a, b) is equal
    assert same(b, a) is equal


def test_the_request_leaves_the_choice_to_the_model():
    request = body(GATE, "m")
    assert request["tool_choice"] == "auto"
    assert request["tools"][0]["function"]["name"] == "get_weather"
