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
        ({"file x": "a" * 64}, {"file x": "b" * 64}, ["file x: aaaaaaaaaaaa -> bbbbbbbbbbbb"]),
        ({"tree": "1" * 40}, {}, ["tree: 111111111111 -> (none)"]),
        ({}, {"base": f"x/y@sha256:{'c' * 64}"}, ["base: (none) -> x/y@sha256:cccccccccccc"]),
        (
            {"source": {"tree": "1" * 40, "modules": {"a": "2" * 40}}},
            {"source": {"tree": "1" * 40, "modules": {"a": "3" * 40}}},
            ['source: {"modules":{"a":"222222222222"}} -> {"modules":{"a":"333333333333"}}'],
        ),
        ({"n": "1" * 50}, {"n": "2" * 50}, [f"n: {'1' * 50} -> {'2' * 50}"]),
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


def test_hashes_that_begin_alike_are_told_apart() -> None:
    (reason,) = differences({"x": "a" * 64}, {"x": "a" * 20 + "b" * 44})
    assert reason.text == f"x: …{'a' * 52} -> …{'a' * 8}{'b' * 44}"


def gate(name: str, **more: object) -> dict:
    return {
        "id": name,
        "command": ["/usr/bin/python3.11", "-B", "/opt/demo/report.py"],
        "expect": "",
        "env": {},
        **more,
    }


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            [gate("a"), gate("b", command=["/bin/sh", "-c", "head -n 1 /opt/demo/report.txt | grep -q sparkbuild"])],
            [gate("a"), gate("b", command=["/bin/sh", "-c", "head -n 1 /opt/demo/report.txt | grep -q demo"])],
            '[{"id":"b","command":["-c","…grep -q sparkbuild"]}] -> [{"id":"b","command":["-c","…grep -q demo"]}]',
        ),
        ([gate("a")], [gate("a", expect="OK")], '[{"id":"a","expect":""}] -> [{"id":"a","expect":"OK"}]'),
        ([gate("a")], [gate("a"), gate("b")], '[] -> [{"id":"b"}]'),
        ([gate("a"), gate("b")], [gate("b")], '[{"id":"a"}] -> []'),
        ([gate("a"), gate("b")], [gate("b"), gate("a")], '["a","b"] -> ["b","a"]'),
        ([], [gate("a")], None),
        (
            [gate("a", env={"A": "1"}), gate("b", env={"A": "1"})],
            [gate("a", env={"A": "2"}), gate("b", env={"A": "3"})],
            (
                '[{"id":"a","env":{"A":"1"}},{"id":"b","env":{"A":"1"}}]'
                ' -> [{"id":"a","env":{"A":"2"}},{"id":"b","env":{"A":"3"}}]'
            ),
        ),
    ],
)
def test_gates(old: list, new: list, text: str | None) -> None:
    """What differs is seen on both sides, and whose it is."""
    (reason,) = differences({"gates": old}, {"gates": new})
    assert text is None or reason.text == f"gates: {text}"
    assert reason.old != reason.new
    assert len(reason.text) < 230


def test_whatever_is_long_and_alike_at_its_beginning_is_cut_there() -> None:
    head = {f"key{number}": "value" * 3 for number in range(30)}
    (reason,) = differences({"x": [{**head, "z": "a"}, 1, 2]}, {"x": [{**head, "z": "b"}, 3, 2]})
    assert reason.old != reason.new
    assert "a" in (reason.old or "").rpartition("z")[2]
    assert "b" in (reason.new or "").rpartition("z")[2]
