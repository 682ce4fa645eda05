"""The smoke gate: a question with a known answer, for arithmetic and for copying an identifier back."""

from __future__ import annotations

import re

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.gates.chat import GateResult, Reply, budget
from sparkbuild.workspace.shapes.schema import SmokeGate

# A character that makes a longer word or number of its neighbour. The underscore is not one: it is markdown here.
_ALNUM = r"[^\W_]"


def grade(gate: SmokeGate, reply: Reply) -> GateResult:
    """Judge a reply. Content counts; reasoning only when the content is empty and the reply was not cut."""
    said = reply.content
    if not said.strip() and reply.finish_reason != "length":
        said = reply.reasoning
    ok = bool(said.strip()) and contains(gate.expect, said)
    message = "" if ok else _wrong(gate, reply, said)
    return GateResult(gate.id, "smoke", ok, one_line(said or reply.reasoning), gate.expect, message)


def _wrong(gate: SmokeGate, reply: Reply, said: str) -> str:
    cut_off = reply.finish_reason == "length"
    if not said.strip():
        if cut_off:
            return budget(gate.max_tokens)
        reason = reply.finish_reason or "none given"
        return f"the answer is empty (finish_reason: {reason})"
    text = f"{gate.expect!r} is not in the answer"
    return f"{text}, which was cut off at max_tokens={gate.max_tokens}" if cut_off else text


def contains(expect: str, answer: str) -> bool:
    """True when `expect` stands in `answer` as a token of its own, punctuation and markdown around it allowed.

    `4` is in "**4**", "= 4." and "(4)", but not in "14", "4.5", "4,000", "-4", "1/4" or "v4"; `SPARK-42` is not in
    "SPARK-421" nor in "X-SPARK-42". Case counts: a model that copies an identifier in another case did not copy it.
    """
    words = expect.split()
    if not words:
        return False
    first, last = words[0][0], words[-1][-1]
    before = rf"(?<!{_ALNUM})"
    after = rf"(?!{_ALNUM})"
    if first.isalnum():
        before += rf"(?<!{_ALNUM}[-_/@])"  # part of a longer identifier
        if first.isdigit():
            before += r"(?<!\d[.,:])(?<![-\u2212.])"  # the tail of a number, or a negative one
    if last.isalnum():
        after += rf"(?![-_/@]{_ALNUM})"
        if last.isdigit():
            after += r"(?![.,:]\d)"  # the head of a longer number
    return re.search(before + r"\s+".join(map(re.escape, words)) + after, answer) is not None
