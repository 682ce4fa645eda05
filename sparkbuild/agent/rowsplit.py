"""Which rows of a lookup table each rank owns: the two rules that runtimes have, and ranges that were given. Pure.

`even` is the rule of the SGLang family: rank r has rows [N*r//tp, N*(r+1)//tp). `heads` is that of vLLM, EXL3 and
TensorFold: a table is the tables of 24 hash heads one after the other, each with a prime number of rows, and a rank has
whole heads. The two differ on both layers of the real model for every tp above 1, and a wrong one is served silently.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from sparkbuild.agent.protocol import AgentError

Ranges = list[tuple[int, int]]  # half-open, one per rank

EVEN, HEADS = "even", "heads"
HEAD_KEYS = {"engram_layer_ids", "engram_vocab_size", "engram_n_heads", "engram_max_ngram_size"}
_ENGRAM = "engram_"
_LARGEST = 1 << 40  # a vocabulary or a table with more rows than this is a mistake
_MOST = 4096  # heads of all layers; the real model has 48

# Miller-Rabin with the first twelve primes is a proof below 3.18e23 (Sorenson and Webster, 2015).
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def engram(config: dict[str, Any]) -> dict[str, Any]:
    """The engram keys of a config.json, which may be nested in `text_config`. Raises AgentError when they differ."""
    nested = config.get("text_config")
    inner = {key: value for key, value in (nested if isinstance(nested, dict) else {}).items() if _is_ours(key)}
    outer = {key: value for key, value in config.items() if _is_ours(key)}
    for key in sorted(inner.keys() & outer.keys()):
        if inner[key] != outer[key]:
            raise AgentError(
                f"config.json says two things about {key}",
                kind="config",
                found=f"{outer[key]!r} at the top, {inner[key]!r} in text_config",
            )
    return outer | inner


def layers_of(keys: dict[str, Any]) -> list[int]:
    """The layers with a table, in the order of the config; [] when it says nothing."""
    return _counts(keys, "engram_layer_ids") if "engram_layer_ids" in keys else []


def primes(keys: dict[str, Any]) -> dict[int, list[int]]:
    """Rows of each head, by layer. Raises AgentError when the config lacks what they are computed from."""
    layers = _counts(keys, "engram_layer_ids")
    vocabulary, heads = _count(keys, "engram_vocab_size"), _count(keys, "engram_n_heads")
    orders = _count(keys, "engram_max_ngram_size") - 1
    if orders < 1 or len(layers) * orders * heads > _MOST:
        found = f"{len(layers)} layers, {orders} orders, {heads} heads"
        raise AgentError("config.json has an impossible number of engram heads", kind="config", found=found)
    seen: set[int] = set()  # no prime is used twice, in whatever layer
    made: dict[int, list[int]] = {}
    for layer in layers:
        rows = made[layer] = []
        for _ in range(orders):
            current = vocabulary - 1
            for _ in range(heads):
                current = next(n for n in range(current + 1, 2 * _LARGEST) if n not in seen and is_prime(n))
                seen.add(current)
                rows.append(current)
    return made


@cache  # each order of n-grams starts at the same number again
def is_prime(number: int) -> bool:
    """Whether it is, for sure, below 3.18e23."""
    if number < 2:
        return False
    for base in _BASES:
        if number % base == 0:
            return number == base
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for base in _BASES:
        power = pow(base, (number - 1) >> twos, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def even(rows: int, tp: int) -> Ranges:
    """As many rows for each rank, rounded down at every cut."""
    return [(rows * rank // tp, rows * (rank + 1) // tp) for rank in range(tp)]


def heads(primes_of_layer: list[int], tp: int) -> Ranges:
    """Whole heads for each rank; the last ranks have fewer or none when tp does not divide their number."""
    starts = [0, *accumulate(primes_of_layer)]
    count = len(primes_of_layer)
    part = -(-count // tp)
    return [(starts[min(count, rank * part)], starts[min(count, (rank + 1) * part)]) for rank in range(tp)]


def check_rank(tp: Any, rank: Any) -> tuple[int, int]:
    """(tp, rank) when there is such a rank. Raises AgentError, kind config."""
    if type(tp) is not int or type(rank) is not int or not 0 <= rank < tp <= _MOST:
        raise AgentError("there is no such rank", kind="config", found=f"rank {rank} of {tp}", wanted="0 to tp - 1")
    return tp, rank


def ranges(split: Any, tp: int, layer: int, rows: int, keys: dict[str, Any]) -> Ranges:
    """The rows of every rank in the table of a layer with so many rows. They are all of the table, each row once.

    `split`: "even", "heads", [[first, end], ...] with one range per rank, or {"<layer>": such a list, ...}. `keys` are
    those of `engram`. Raises AgentError, kind config.
    """
    if split == EVEN:
        return even(rows, tp)
    if split == HEADS:
        known = primes(keys)
        if layer not in known:
            raise AgentError(f"config.json has no heads for layer {layer}", kind="config", found=str(list(known)))
        check_primes(known[layer], layer, rows)
        return heads(known[layer], tp)
    if isinstance(split, dict):
        if str(layer) not in split:
            found = ", ".join(map(str, split)) or "nothing"
            raise AgentError(f"split has no ranges for layer {layer}", kind="config", found=found)
        split = split[str(layer)]
    given = _given(split, tp)
    _check_tiling(given, layer, rows)
    return given


def check_primes(primes_of_layer: list[int], layer: int, rows: int) -> None:
    """Do the heads of a layer add up to its table? Raises AgentError, kind config."""
    if sum(primes_of_layer) != rows:
        raise AgentError(
            f"config.json is not of this checkpoint: the heads of layer {layer} are another table",
            kind="config",
            found=f"{rows} rows in the checkpoint",
            wanted=f"{sum(primes_of_layer)} rows, the sum of {len(primes_of_layer)} primes from engram_vocab_size",
        )


def _given(split: Any, tp: int) -> Ranges:
    pairs = split if isinstance(split, list | tuple) else ()
    right = [
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(row) is int for row in pair)
    ]
    if not pairs or len(right) != len(pairs):
        wanted = f'"{EVEN}", "{HEADS}", or [[first row, end], ...] with one range per rank'
        raise AgentError("a split that is none", kind="config", found=repr(split)[:200], wanted=wanted)
    if len(right) != tp:
        raise AgentError("split has not one range per rank", kind="config", found=f"{len(right)}", wanted=f"{tp}")
    return right


def _check_tiling(given: Ranges, layer: int, rows: int) -> None:
    where = f"the table of layer {layer} has rows 0 to {rows - 1}"
    for rank, (first, end) in enumerate(given):
        if not 0 <= first <= end <= rows:
            found = f"[{first}, {end}) of rank {rank}"
            raise AgentError("a range of split is not in the table", kind="config", where=where, found=found)
    owners = sorted((first, end, rank) for rank, (first, end) in enumerate(given) if first < end)
    for (first, end, rank), (after, end_after, other) in pairwise(owners):
        if after < end:
            raise AgentError(
                f"ranks {min(rank, other)} and {max(rank, other)} overlap in split",
                kind="config",
                where=where,
                found=f"rows [{after}, {min(end, end_after)}) are in both [{first}, {end}) and [{after}, {end_after})",
                wanted="every row in one range",
            )
    ends = [0, *(end for _, end, _ in owners)]
    for end, after in zip(ends, [*(first for first, _, _ in owners), rows], strict=True):
        if end < after:
            raise AgentError(
                "split leaves rows out",
                kind="config",
                where=where,
                found=f"rows [{end}, {after}) are in no range",
                wanted="every row in one range",
                next="ranges per layer go as {layer = [[first, end], ...]}, since tables differ in length",
            )


def _is_ours(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(_ENGRAM)


def _count(keys: dict[str, Any], key: str) -> int:
    value = keys.get(key)
    if type(value) is not int or not 0 < value < _LARGEST:
        found = "nothing" if value is None else repr(value)
        raise AgentError(f"config.json has no usable {key}", kind="config", found=found, wanted="a positive number")
    return value


def _counts(keys: dict[str, Any], key: str) -> list[int]:
    value = keys.get(key)
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one < _LARGEST for one in value):
        found = "nothing" if value is None else repr(value)
        raise AgentError(f"config.json has no usable {key}", kind="config", found=found, wanted="a list of numbers")
    if len(set(value)) != len(value):
        raise AgentError(f"config.json names one twice in {key}", kind="config", found=repr(value))
    return value
