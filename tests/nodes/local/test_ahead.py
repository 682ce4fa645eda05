"""The question of last time, asked early: an answer to it or none, and never an end of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.nodes.local.ahead import Ahead

COMMAND = ("doit", "plan")


def asked(folder: Path, answer: bytes | BaseException) -> Ahead:
    Ahead(str(folder), COMMAND, lambda _question: b"").remember(b"question")

    def ask(question: bytes) -> bytes:
        assert question == b"question"
        if isinstance(answer, BaseException):
            raise answer
        return answer

    found = Ahead(str(folder), COMMAND, ask)
    found.start()
    return found


def test_an_answer_is_for_that_question_and_given_once(tmp_path: Path) -> None:
    assert asked(tmp_path, b"answer").take(b"another") == b""
    early = asked(tmp_path, b"answer")
    assert early.take(b"question") == b"answer"
    assert early.take(b"question") == b""


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("failure", [PermissionError(13, "no"), FileNotFoundError(2, "no"), SystemExit(143)])
def test_what_cannot_be_asked_early_is_asked_again_without_a_word(tmp_path: Path, failure: BaseException) -> None:
    assert asked(tmp_path, failure).take(b"question") == b""
