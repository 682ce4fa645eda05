from __future__ import annotations

import pytest

from sparkbuild.gates.chat import Reply, question
from sparkbuild.gates.smoke import contains, grade
from sparkbuild.workspace.shapes.schema import SmokeGate

GATE = SmokeGate(id="sum", prompt="2+2?", expect="4", max_tokens=64)


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ("4", "4"),
        ("4", "4."),
        ("4", "The answer is **4**."),
        ("4", "2 + 2 = 4"),
        ("4", "2+2=4"),
        ("4", "`4`"),
        ("4", "_4_"),
        ("4", "(4)"),
        ("4", "“4”!"),
        ("4", "\\boxed{4}"),
        ("4", "14 is wrong, it is 4, of course"),
        ("4", "- 4\n"),
        ("-4", "it is -4."),
        ("4.5", "it is 4.5."),
        ("SPARK-42", "The node name is SPARK-42."),
        ("SPARK-42", "**SPARK-42**"),
        ("SPARK-42", '"SPARK-42"'),
        ("Paris", "Paris, France"),
        ("New York", "It is New\n  York."),
        ("a+b", "the sum a+b is"),
        ("é", "é"),
    ],
)
def test_stands_in_the_answer(expect: str, answer: str):
    assert contains(expect, answer)


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ("4", "14"),
        ("4", "40"),
        ("4", "4.5"),
        ("4", "4,000"),
        ("4", "0.4"),
        ("4", ".4"),
        ("4", "1,4"),
        ("4", "-4"),
        ("4", "\u22124"),
        ("4", "1/4"),
        ("4", "4/5"),
        ("4", "4:30"),
        ("4", "v4"),
        ("4", "foo_4"),
        ("4", "GPT-4"),
        ("4", "four"),
        ("4", ""),
        ("", "anything"),
        ("SPARK-42", "SPARK-421"),
        ("SPARK-42", "X-SPARK-42"),
        ("SPARK-42", "spark-42"),
        ("SPARK-42", "SPARK-42.5"),
        ("SPARK-42", "SPARK 42"),
        ("SPARK-42", "Sparking-42."),
        ("Paris", "Parisian"),
        ("a.b", "axb"),
    ],
)
def test_does_not_stand_in_the_answer(expect: str, answer: str):
    assert not contains(expect, answer)


@pytest.mark.parametrize(
    ("reply", "ok", "message"),
    [
        (Reply(content="It is 4.", finish_reason="stop"), True, ""),
        (Reply(content="It is 5.", finish_reason="stop"), False, "'4' is not in the answer"),
        (
            Reply(content="Let me think about", finish_reason="length"),
            False,
            "'4' is not in the answer, which was cut off at max_tokens=64",
        ),
        (
            Reply(content="", reasoning="Two plus", finish_reason="length"),
            False,
            "the answer did not fit max_tokens=64: raise it; this is not garble",
        ),
        # An answer that stands only in reasoning that was cut off is no answer.
        (
            Reply(content="", reasoning="It is 4, but", finish_reason="length"),
            False,
            "the answer did not fit max_tokens=64: raise it; this is not garble",
        ),
        (Reply(content=" \n", finish_reason="stop"), False, "the answer is empty (finish_reason: stop)"),
        (Reply(), False, "the answer is empty (finish_reason: none given)"),
        # Some servers put the whole of a short answer into reasoning.
        (Reply(content="", reasoning="4", finish_reason="stop"), True, ""),
        (Reply(content="It is 5.", reasoning="4", finish_reason="stop"), False, "'4' is not in the answer"),
    ],
)
def test_grading(reply: Reply, ok: bool, message: str):
    result = grade(GATE, reply)
    assert (result.ok, result.message) == (ok, message)
    assert result.expected == "4"


def test_a_long_answer_is_cut():
    result = grade(GATE, Reply(content="no " * 1000, finish_reason="stop"))
    assert len(result.answer) == 400
    assert result.answer.endswith("…")


def test_the_request():
    assert question(GATE, "m") == {"model": "m", "messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 64}
