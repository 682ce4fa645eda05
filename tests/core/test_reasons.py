"""Reasons show what differs, shortly."""

import pytest

from sparkbuild.core.reasons import differences


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"port": 8080}, {"port": 8081}, ["port: 8080 -> 8081"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b: (none) -> 2"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["b: 2 -> (none)"]),
        (
            {"command": ["x", "--ctx", "2048", "--par", "2"]},
            {"command": ["x", "--ctx", "4096", "--par", "2"]},
            ['command: ["--ctx","2048"] -> ["--ctx","4096"]'],
        ),
        ({"command": ["x", "y"]}, {"command": ["x", "y", "z"]}, ['command: ["y"] -> ["y","z"]']),
        ({"command": ["a", "a"]}, {"command": ["a"]}, ['command: ["a","a"] -> ["a"]']),
        ({"env": {"A": "1", "B": "2"}}, {"env": {"A": "1", "B": "3"}}, ['env: {"B":"2"} -> {"B":"3"}']),
        ({"env": {"A": "1"}}, {"env": {}}, ['env: {"A":"1"} -> {}']),
    ],
)
def test_differences(old: dict, new: dict, texts: list) -> None:
    assert [reason.text for reason in differences(old, new)] == texts


def test_long_values_are_cut_around_what_differs() -> None:
    old, new = "x" * 500 + "A" + "y" * 500, "x" * 500 + "B" + "y" * 500
    (reason,) = differences({"t": old}, {"t": new})
    assert "A" in (reason.old or "")
    assert "B" in (reason.new or "")
    assert len(reason.text) < 200


def test_a_long_item_of_a_list_is_cut_around_what_differs() -> None:
    path = "{{ staged.weights }}/a-rather-long-folder-name/SmolLM2-135M-Instruct.Q4_1.gguf"
    other = path.replace("Q4_1.gguf", "Q4_1-broken.gguf")
    (reason,) = differences({"command": ["x", "--model", path, "y"]}, {"command": ["x", "--model", other, "y"]})
    assert reason.old == '["--model","…uct.Q4_1.gguf"]'
    assert reason.new == '["--model","…uct.Q4_1-broken.gguf"]'
    long = "word " * 100
    (reason,) = differences({"c": ["--p", long + "a" + long]}, {"c": ["--p", long + "b" + long]})
    assert reason.old != reason.new
    assert len(reason.text) < 150
