"""Which rows of a lookup table each rank owns: the two rules that runtimes have, and ranges that were given. Pure.

`even` is the rule of the SGLang family: rank r has rows [N*r//tp, N*(r+1)//tp). `heads` is that of vLLM, EXL3 and
TensorFold: a table is the tables of 24 hash heads one after the other, each with a prime number of rows, and a rank has
whole heads. The two differ on both layers of the real model for every tp above 1, and a wrong one is served silently.

Errors about config.json say where it is when they are told it (`path`); those about a split, neither where the table is
nor what to write instead: rows.shares, which knows it, adds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import accumulate, pairwise

from sparkbuild.agent.wire.protocol import AgentError, config_error

Config = Mapping[str, object]  # a config.json, or keys of one, as anybody wrote it
Ranges = list[tuple[int, int]]  # half-open, one per rank

EVEN, HEADS = "even", "heads"
_WRITE = "`layers` and the ranges that the reader has must be written"
AGAIN = "fetch it again, from the same revision as the shards; or correct `src` of this staging block"
HEAD_KEYS = {"engram_layer_ids", "engram_vocab_size", "engram_n_heads", "engram_max_ngram_size"}
_ENGRAM = "engram_"
_LARGEST = 1 << 40  # a vocabulary or a table with more rows than this is a mistake
_MOST = 4096  # heads of all layers; the real model has 48


class NoRangesError(AgentError):
    """config.json has not what ranges are computed from. `packed` adds to its `next` how written ones look."""


# Miller-Rabin with the first twelve primes is a proof below 3.18e23 (Sorenson and Webster, 2015).
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def engram(config: Config, path: str = "") -> Config:
    """The engram keys of a config.json, which may be nested in `text_config`. Raises AgentError when they differ."""
    nested = config.get("text_config")
    inner = {key: value for key, value in (nested if isinstance(nested, dict) else {}).items() if _is_ours(key)}
    outer = {key: value for key, value in config.items() if _is_ours(key)}
    for key in sorted(inner.keys() & outer.keys()):
        if inner[key] != outer[key]:
            raise config_error(
                f"config.json says two things about {key}",
                where=path,
                found=f"{outer[key]!r} at the top, {inner[key]!r} in text_config",
                wanted="the same in both, or one of them",
                next=AGAIN,
            )
    return outer | inner


def layers_of(keys: Config, path: str = "") -> list[int]:
    """The layers with a table, in the order of the config; [] when it says nothing."""
    return _counts(keys, "engram_layer_ids", path) if "engram_layer_ids" in keys else []


def primes(keys: Config, path: str = "") -> dict[int, list[int]]:
    """Rows of each head, by layer. Raises AgentError when the config lacks what they are computed from."""
    layers = _counts(keys, "engram_layer_ids", path)
    vocabulary, heads = _count(keys, "engram_vocab_size", path), _count(keys, "engram_n_heads", path)
    orders = _count(keys, "engram_max_ngram_size", path) - 1
    if orders < 1 or len(layers) * orders * heads > _MOST:
        found = f"{len(layers)} layers, {orders} orders, {heads} heads"
        what, wanted = "config.json has an impossible number of engram heads", f"1 to {_MOST} in all"
        raise config_error(what, where=path, found=found, wanted=wanted, next=AGAIN)
    seen: set[int] = set()  # no prime is used twice, in whatever layer
    by_layer: dict[int, list[int]] = {}
    for layer in layers:
        rows = by_layer[layer] = []
        for _ in range(orders):
            current = vocabulary - 1
            for _ in range(heads):
                current = next(n for n in range(current + 1, 2 * _LARGEST) if n not in seen and is_prime(n))
                seen.add(current)
                rows.append(current)
    return by_layer


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


def check_rank(tp: object, rank: object) -> tuple[int, int]:
    """(tp, rank) when there is such a rank. Raises AgentError, kind config."""
    if type(tp) is not int or type(rank) is not int or not 0 <= rank < tp <= _MOST:
        raise config_error("there is no such rank", found=f"rank {rank} of {tp}", wanted="0 to tp - 1")
    return tp, rank


def ranges(split: object, tp: int, layer: int, rows: int, keys: Config, *, path: str = "") -> Ranges:
    """The rows of every rank in the table of a layer with so many rows. They are all of the table, each row once.

    `split`: "even", "heads", [[first, end], ...] with one range per rank, or {"<layer>": such a list, ...}. `keys` are
    those of `engram`, `path` is the config.json they are from. Raises AgentError, kind config.
    """
    if split == EVEN:
        return even(rows, tp)
    if split == HEADS:
        known = primes(keys, path)
        if layer not in known:
            raise NoRangesError(
                f"config.json has no heads for layer {layer}",
                kind="config",
                where=path,
                found=f"engram_layer_ids = {list(known)}",
                wanted=f"layer {layer} among them",
                next=f"correct `layers` of this staging block; without heads, {_WRITE}",
            )
        check_primes(known[layer], layer, rows, path)
        return heads(known[layer], tp)
    if isinstance(split, dict):
        if str(layer) not in split:
            found = f"ranges for layer {', '.join(map(str, split))}" if split else "no ranges at all"
            wanted = f"ranges for each layer that is staged, {layer} among them"
            raise config_error(f"split has no ranges for layer {layer}", found=found, wanted=wanted)
        split = split[str(layer)]
    given = _given(split, tp)
    _check_tiling(given, layer, rows)
    return given


def written(by_layer: dict[int, Ranges]) -> str:
    """A split as it stands in a recipe: `split = { 1 = [[0, 100], [100, 250]] }`."""
    texts = (f"{layer} = {[list(pair) for pair in ranges]}" for layer, ranges in by_layer.items())
    return f"split = {{ {', '.join(texts)} }}"


def check_primes(primes_of_layer: list[int], layer: int, rows: int, path: str = "") -> None:
    """Do the heads of a layer add up to its table? Raises AgentError, kind config."""
    if sum(primes_of_layer) != rows:
        raise config_error(
            f"config.json is not of this checkpoint: the heads of layer {layer} are another table",
            found=f"{rows} rows in the checkpoint",
            wanted=f"{sum(primes_of_layer)} rows, the sum of {len(primes_of_layer)} primes from engram_vocab_size"
            + (f" in {path}" if path else ""),
            next="fetch both again, from one revision; or correct `src` of this staging block",
        )


def _given(split: object, tp: int) -> Ranges:
    pairs = split if isinstance(split, list | tuple) else ()
    right = [
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(row) is int for row in pair)
    ]
    if not pairs or len(right) != len(pairs):
        wanted = f'"{EVEN}", "{HEADS}", or [[first row, end], ...] with one range per rank'
        raise config_error("a split that is none", found=repr(split)[:200], wanted=wanted)
    if len(right) != tp:
        found, wanted = f"{len(right)} range" + ("" if len(right) == 1 else "s"), f"{tp}, one for each rank"
        raise config_error("split has not one range per rank", found=found, wanted=wanted)
    return right


def _check_tiling(given: Ranges, layer: int, rows: int) -> None:
    wanted = f"each of the {rows} rows of the table of layer {layer} in one range"
    for rank, (first, end) in enumerate(given):
        if not 0 <= first <= end <= rows:
            found = f"[{first}, {end}) of rank {rank}"
            raise config_error("a range of split is not in the table", found=found, wanted=wanted)
    owners = sorted((first, end, rank) for rank, (first, end) in enumerate(given) if first < end)
    for (first, end, rank), (after, end_after, other) in pairwise(owners):
        if after < end:
            raise config_error(
                f"ranks {min(rank, other)} and {max(rank, other)} overlap in split",
                found=f"rows [{after}, {min(end, end_after)}) are in both [{first}, {end}) and [{after}, {end_after})",
                wanted=wanted,
            )
    ends = [0, *(end for _, end, _ in owners)]
    for end, after in zip(ends, [*(first for first, _, _ in owners), rows], strict=True):
        if end < after:
            found = f"rows [{end}, {after}) of layer {layer} are in no range"
            raise config_error("split leaves rows out", found=found, wanted=wanted)


def _is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(_ENGRAM)


def _count(keys: Config, key: str, path: str) -> int:
    value = keys.get(key)
    if type(value) is not int or not 0 < value < _LARGEST:
        found = "nothing" if value is None else repr(value)
        raise _useless(key, path, found, f"a whole number from 1 to {_LARGEST - 1}")
    return value


def _counts(keys: Config, key: str, path: str) -> list[int]:
    value = keys.get(key)
    if not isinstance(value, list) or not all(type(number) is int and 0 <= number < _LARGEST for number in value):
        found = "nothing" if value is None else repr(value)
        raise _useless(key, path, found[:200], f"a list of whole numbers from 0 to {_LARGEST - 1}")
    if len(set(value)) != len(value):
        what = f"config.json names one twice in {key}"
        raise config_error(what, where=path, found=repr(value), wanted="each once", next=AGAIN)
    return value


def _useless(key: str, path: str, found: str, wanted: str) -> NoRangesError:
    return NoRangesError(
        f"config.json has no usable {key}",
        kind="config",
        where=path,
        found=found,
        wanted=wanted,
        next=f"{AGAIN}; without it, {_WRITE}",
    )
