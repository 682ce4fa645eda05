"""Fields of docker's answers: of the type that its API says, or not there."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.agent.docker.shapes import shaped


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"Id": "a", "Names": ["/x"], "State": "running"}, {"Id": "a", "Names": ["/x"], "State": "running"}),
        ({"Id": 5, "Size": "big", "Config": [], "Labels": None}, {}),
        ({"Size": True}, {}),  # no number, though Python takes it for one
        ({"State": {"Pid": 5, "Status": "running"}}, {"State": {"Pid": 5, "Status": "running"}}),
        ({"Names": ["/x", 5], "Mounts": [{"Source": "/x"}, "y"]}, {"Names": ["/x"], "Mounts": [{"Source": "/x"}]}),
        ({"Config": {"Env": "A=b", "Cmd": ["x"]}}, {"Config": {"Cmd": ["x"]}}),
        # whoever makes a container names its labels: none of these is a field of docker's
        ({"Labels": {"Size": "big", "Id": "5"}}, {"Labels": {"Size": "big", "Id": "5"}}),
        ([{"Id": 5}, "x"], [{}, "x"]),
        (None, None),
    ],
)
def test_what_is_kept(said: Any, kept: Any) -> None:
    assert shaped(said) == kept


def test_deep_answers_end() -> None:
    value: Any = {}
    for _ in range(900):
        value = {"Config": value}
    shaped(value)
