"""A key is its parts, whatever their order, and nothing else."""

import hashlib
import json

from hypothesis import given, strategies as st

from sparkbuild.core.key import SHORT, Key

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
_parts = st.dictionaries(st.text(max_size=8), _values, max_size=6)


@given(_parts)
def test_order_of_parts_does_not_matter(parts: dict) -> None:
    assert Key(parts) == Key(dict(reversed(parts.items())))
    assert Key(parts).digest.startswith(Key(parts).short)
    assert len(Key(parts).short) == SHORT


@given(_parts, _parts)
def test_other_parts_give_another_key(one: dict, other: dict) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (Key(one) == Key(other)) == same


def test_a_known_key_stays_what_it_was() -> None:
    """Keys are stored on nodes: a change of the canonical form would make everything stale everywhere."""
    key = Key({"b": [1, "é"], "a": {"z": None, "y": True}})
    assert key.digest == hashlib.sha256('{"a":{"y":true,"z":null},"b":[1,"é"]}'.encode()).hexdigest()
