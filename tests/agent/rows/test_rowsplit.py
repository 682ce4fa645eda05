"""Which rows a rank owns: the two rules against public figures, and ranges that were given."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.rows import rowsplit
from sparkbuild.agent.rows.rowsplit import engram, even, heads, is_prime, primes, ranges
from sparkbuild.agent.wire.protocol import AgentError
from tests.staging.checkpoint import heads_of
from tests.staging.readers import tile

KEYS: dict[str, Any] = {
    "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384006168, 384016682],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 16000000,
    "engram_n_heads": 8,
}
ROWS = {1: 384006168, 14: 384016682}
SMALL = {**KEYS, "engram_vocab_size": 1000, "engram_num_embeddings": [25874, 30058]}
SMALL_ROWS = {1: 25874, 14: 30058}

# The cuts between ranks in the tables of DeepSeek-V4.1-Flash, as packers and runtimes of both families compute them.
CUTS: dict[tuple[int, str, int], list[int]] = {
    (1, "even", 2): [192003084],
    (1, "heads", 2): [192001740],
    (14, "even", 2): [192008341],
    (14, "heads", 2): [192007016],
    (1, "even", 3): [128002056, 256004112],
    (1, "heads", 3): [128000880, 256002934],
    (14, "even", 3): [128005560, 256011121],
    (14, "heads", 3): [128004290, 256009984],
    (1, "even", 4): [96001542, 192003084, 288004626],
    (1, "heads", 4): [96000564, 192001740, 288003654],
    (14, "even", 4): [96004170, 192008341, 288012511],
    (14, "heads", 4): [96003054, 192007016, 288011564],
    (1, "even", 8): [48000771 * n for n in range(1, 8)],
    (1, "heads", 8): [48000217, 96000564, 144001069, 192001740, 240002613, 288003654, 336004849],
    (14, "even", 8): [48002085, 96004170, 144006255, 192008341, 240010426, 288012511, 336014596],
    (14, "heads", 8): [48001463, 96003054, 144004957, 192007016, 240009215, 288011564, 336014037],
}
SMALL_CUTS: dict[tuple[int, str, int], list[int]] = {
    (1, "even", 2): [12937],
    (1, "even", 3): [8624, 17249],
    (1, "even", 4): [6468, 12937, 19405],
    (1, "heads", 2): [12458],
    (1, "heads", 3): [8214, 16826],
    (1, "heads", 4): [6126, 12458, 19038],
    (14, "even", 2): [15029],
    (14, "even", 3): [10019, 20038],
    (14, "even", 4): [7514, 15029, 22543],
    (14, "heads", 2): [14532],
    (14, "heads", 3): [9586, 19630],
    (14, "heads", 4): [7146, 14532, 22210],
}


def refused(split: Any, tp: int, rows: int = 100, layer: int = 1, keys: dict[str, Any] | None = None) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        ranges(split, tp, layer, rows, keys or {})
    assert caught.value.fields["kind"] == "config"
    return caught.value.fields


@pytest.mark.parametrize(("layer", "split", "tp"), CUTS)
def test_the_real_tables(layer: int, split: str, tp: int) -> None:
    found = ranges(split, tp, layer, ROWS[layer], KEYS)
    assert found == list(pairwise([0, *CUTS[layer, split, tp], ROWS[layer]]))


@pytest.mark.parametrize(("layer", "split", "tp"), SMALL_CUTS)
def test_the_small_tables(layer: int, split: str, tp: int) -> None:
    found = ranges(split, tp, layer, SMALL_ROWS[layer], SMALL)
    assert found == list(pairwise([0, *SMALL_CUTS[layer, split, tp], SMALL_ROWS[layer]]))


def test_the_two_rules_are_never_the_same() -> None:
    for layer, rows in ROWS.items():
        for tp in (2, 3, 4, 8):
            assert ranges("even", tp, layer, rows, KEYS) != ranges("heads", tp, layer, rows, KEYS)
        assert ranges("even", 1, layer, rows, KEYS) == ranges("heads", 1, layer, rows, KEYS) == [(0, rows)]


def test_primes_of_the_real_model_in_no_time() -> None:
    is_prime.cache_clear()
    began = time.perf_counter()
    found = primes(KEYS)
    assert time.perf_counter() - began < 2  # 1.4 ms on an idle machine
    assert {layer: sum(rows) for layer, rows in found.items()} == ROWS
    assert len(set(found[1] + found[14])) == 48
    assert min(found[1]) == 16000057


def test_primes_of_the_small_model() -> None:
    found = primes(SMALL)
    assert (found[1][:3], found[1][-1], found[14][:3], found[14][-1]) == (
        [1009, 1013, 1019],
        1163,
        [1171, 1181, 1187],
        1321,
    )


@given(
    vocab=st.integers(2, 5000), layers=st.permutations([1, 14, 20]), orders=st.integers(1, 3), count=st.integers(1, 8)
)
def test_primes_against_trial_division(vocab: int, layers: list[int], orders: int, count: int) -> None:
    keys = {
        "engram_layer_ids": layers,
        "engram_vocab_size": vocab,
        "engram_n_heads": count,
        "engram_max_ngram_size": orders + 1,
    }
    assert primes(keys) == heads_of(vocab, tuple(layers), orders, count)


def test_numbers_that_only_look_prime() -> None:
    carmichael = [561, 1105, 1729, 2465, 6601, 8911, 512461, 3215031751, 3825123056546413051]
    assert not any(map(is_prime, [0, 1, 4, *carmichael, 16000057 * 16000061]))
    assert all(map(is_prime, [2, 3, 37, 41, 16000057, (1 << 61) - 1]))


@pytest.mark.parametrize("tp", [5, 7, 9, 16, 24, 25, 30])
def test_ranks_that_do_not_divide_the_heads(tp: int) -> None:
    found = ranges("heads", tp, 1, ROWS[1], KEYS)
    assert len(found) == tp
    assert tile(found, ROWS[1])
    assert [a[1] for a in found[:-1]] == [b[0] for b in found[1:]]
    if tp == 7:  # four heads each: six ranks are enough
        assert found[6] == (ROWS[1], ROWS[1])
    if tp == 9:
        assert found[8] == (ROWS[1], ROWS[1])


@given(rows=st.integers(0, 10**12), tp=st.integers(1, 64))
def test_even_is_the_whole_table(rows: int, tp: int) -> None:
    found = even(rows, tp)
    assert tile(found, rows)
    assert {hi - lo for lo, hi in found} <= {rows // tp, rows // tp + 1}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 40))
def test_heads_are_whole(rows: list[int], tp: int) -> None:
    found = heads(rows, tp)
    cuts = {sum(rows[:n]) for n in range(len(rows) + 1)}
    assert {lo for lo, _ in found} | {hi for _, hi in found} <= cuts
    assert tile(found, sum(rows))


def test_given_ranges() -> None:
    assert ranges([[0, 30], [30, 100]], 2, 1, 100, {}) == [(0, 30), (30, 100)]
    assert ranges([[30, 100], [0, 30]], 2, 1, 100, {}) == [(30, 100), (0, 30)]  # any order
    assert ranges([[0, 100], [100, 100], [7, 7]], 3, 1, 100, {}) == [(0, 100), (100, 100), (7, 7)]
    by_layer = {"1": [[0, 30], [30, 100]], "14": [[0, 50], [50, 101]]}
    assert ranges(by_layer, 2, 14, 101, {}) == [(0, 50), (50, 101)]
    assert "no ranges for layer 2" in refused(by_layer, 2, 100, 2)["what"]


def test_ranges_that_overlap_name_their_ranks() -> None:
    fields = refused([[60, 100], [0, 40], [30, 60]], 3)
    assert fields["what"] == "ranks 1 and 2 overlap in split"
    assert "rows [30, 40)" in fields["found"]
    assert refused([[0, 100], [20, 30]], 2)["found"].startswith("rows [20, 30)")
    assert "overlap" in refused([[0, 50], [0, 50]], 2)["what"]


@pytest.mark.parametrize(
    ("split", "gap"),
    [
        ([[0, 40], [41, 100]], "rows [40, 41)"),
        ([[1, 40], [40, 100]], "rows [0, 1)"),
        ([[0, 40], [40, 99]], "rows [99, 100)"),
        ([[0, 0], [100, 100]], "rows [0, 100)"),
    ],
)
def test_ranges_with_a_gap_say_which(split: list[list[int]], gap: str) -> None:
    fields = refused(split, 2)
    assert fields["what"] == "split leaves rows out"
    assert fields["found"].startswith(gap)


@pytest.mark.parametrize(
    "split",
    [
        "ceil",
        "",
        None,
        5,
        [],
        [[0, 50], [50]],
        [[0, 50], "ab"],
        [[0, 50.0], [50, 100]],
        [[0, True], [1, 100]],
        {"1": 3},
    ],
)
def test_a_split_that_is_none(split: Any) -> None:
    assert "a split that is none" in refused(split, 2)["what"]


def test_given_ranges_that_are_not_in_the_table() -> None:
    assert "one range per rank" in refused([[0, 100]], 2)["what"]
    for pair in ([50, 101], [-1, 100], [60, 40]):
        assert "not in the table" in refused([[0, 50], pair], 2)["what"]


def test_heads_that_are_another_table() -> None:
    fields = refused("heads", 4, 25875, keys=SMALL)
    assert (fields["found"], fields["wanted"][:10]) == ("25875 rows in the checkpoint", "25874 rows")
    assert "no heads for layer 7" in refused("heads", 4, 25874, 7, SMALL)["what"]
    assert "engram_layer_ids" in refused("heads", 4, 25874)["what"]


@pytest.mark.parametrize("value", [None, 0, -5, "1000", 1.5, True, 1 << 50])
@pytest.mark.parametrize("key", ["engram_vocab_size", "engram_n_heads", "engram_max_ngram_size"])
def test_config_keys_that_are_of_no_use(key: str, value: Any) -> None:
    assert key in refused("heads", 4, 25874, keys={**SMALL, key: value})["what"]


@pytest.mark.parametrize(
    "more", [{"engram_n_heads": 10**9}, {"engram_max_ngram_size": 1}, {"engram_layer_ids": [1, 1]}]
)
def test_configs_that_would_take_for_ever(more: dict[str, Any]) -> None:
    assert "config.json" in refused("heads", 4, 25874, keys={**SMALL, **more})["what"]


def test_keys_in_text_config() -> None:
    assert engram({"text_config": SMALL, "model_type": "x"}) == SMALL
    assert engram({**SMALL, "text_config": {"hidden_size": 1}}) == SMALL
    assert engram({**SMALL, "text_config": SMALL}) == SMALL
    assert engram({"text_config": None}) == {}
    with pytest.raises(AgentError) as caught:
        engram({**SMALL, "text_config": {**SMALL, "engram_vocab_size": 2}})
    assert caught.value.fields["what"] == "config.json says two things about engram_vocab_size"


@pytest.mark.parametrize(
    ("tp", "rank"), [(4, 4), (4, -1), (0, 0), (-1, 0), ("4", 0), (4, None), (True, 0), (1 << 40, 0)]
)
def test_ranks_that_are_none(tp: Any, rank: Any) -> None:
    with pytest.raises(AgentError) as caught:
        rowsplit.check_rank(tp, rank)
    assert caught.value.fields["kind"] == "config"
