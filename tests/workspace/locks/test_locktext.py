"""The text of a lock: what is read, what is refused and how, what is written."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sparkbuild.core.errors import LockError
from sparkbuild.workspace.locks.sourcelock import FORMAT, dump, parse, update
from sparkbuild.workspace.locks.text import EPOCH
from tests.workspace.helpers import FORMAT as HEAD

PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20)
HASHES = (".sha256", ".commit", ".tree")  # endings of keys whose value is a hash, and no other text
KEYS = PLAIN.map(str.strip).filter(
    lambda key: (
        key and key not in {"format", EPOCH} and "=" not in key and not key.startswith("#") and not key.endswith(HASHES)
    )
)
VALUES = st.dictionaries(KEYS, PLAIN.map(str.strip), max_size=8)
NOISE = st.lists(st.sampled_from(["", "  ", "# a comment", "   # another = one", "#"]), max_size=4)


def refused(text: str) -> LockError:
    with pytest.raises(LockError) as caught:
        parse(text, "r35", "locks/r35.source.lock")
    return caught.value


def test_values_may_hold_spaces_and_equals_signs() -> None:
    lock = parse(f"{HEAD}\n# note\na.b=one two = three\nempty=\n", "x", "locks/x.source.lock")
    assert lock.values == {"format": FORMAT, "a.b": "one two = three", "empty": ""}
    assert lock.where("a.b") == "locks/x.source.lock:4"


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("no equals\n", 2, "without `=`"),
        ("a=1\n=2\n", 3, "without a key"),
        ("a=1\n\n# c\na=2\n", 5, "twice"),
        ("a=x\ty\n", 2, "control character"),
        ("a=x\u2028y\n", 2, "control character"),
        ("a=1\r\n", 2, "carriage return"),
        ("a = 1\n", 2, "spaces around"),
        ("a=1 \n", 2, "spaces around"),
        ("vllm.commit=abc\n", 2, "not a commit"),
        ("vllm.tree=" + "A" * 40 + "\n", 2, "not a tree"),
        ("x.sha256=" + "g" * 64 + "\n", 2, "not a sha256"),
        ("x.sha256=" + "a" * 63 + "\n", 2, "not a sha256"),
        ("x.sha256=" + "\uff11" * 64 + "\n", 2, "not a sha256"),
        ("x.sha256=\n", 2, "not a sha256"),
    ],
)
def test_refused_at_its_line(body: str, line: int, says: str) -> None:
    error = refused(HEAD + body)
    assert error.where == f"locks/r35.source.lock:{line}"
    assert says in error.what


def test_a_duplicate_names_both_lines() -> None:
    assert refused(f"{HEAD}a=1\nb=2\na=1\n").found == "first on line 2, again on line 4"


@pytest.mark.parametrize("text", ["", "a=1\n", "format=local-inference-source-lock/v2\n", "\n" + HEAD, "\ufeff" + HEAD])
def test_another_format_is_refused(text: str) -> None:
    error = refused(text)
    assert error.where == "locks/r35.source.lock:1"
    assert error.wanted == f"format={FORMAT}"


@given(VALUES)
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    assert parse(dump(values), "x", "x").values == {"format": FORMAT, **values}


@given(VALUES, NOISE)
def test_comments_and_order_do_not_change_the_sha256(values: dict[str, str], noise: list[str]) -> None:
    turned = dict(reversed(list(values.items())))
    comments = {"": "about the lock", **{key: "why\nthis" for key in values if key != ""}}
    noisy = dump(turned, comments) + "".join(f"{line}\n" for line in noise)
    assert parse(noisy, "x", "x").sha256 == parse(dump(values), "y", "y").sha256


@given(VALUES, VALUES)
def test_other_values_change_the_sha256(one: dict[str, str], two: dict[str, str]) -> None:
    same = parse(dump(one), "x", "x").sha256 == parse(dump(two), "x", "x").sha256
    assert same == (one == two)


@given(VALUES, VALUES, NOISE, st.booleans())
def test_update_keeps_comments_and_order(
    values: dict[str, str], changes: dict[str, str], noise: list[str], end: bool
) -> None:
    lines = [f"format={FORMAT}"]
    for key, value in values.items():
        lines += [*noise, f"{key}={value}"]
    text = "\n".join(lines) + ("\n" if end else "")
    after = update(text, changes)
    assert parse(after, "x", "x").values == {"format": FORMAT, **values, **changes}
    added = [key for key in changes if key not in values]
    kept = after.split("\n")[: len(lines)]
    assert [line.partition("=")[0] for line in kept] == [line.partition("=")[0] for line in lines]
    assert list(parse(after, "x", "x").values) == ["format", *values, *added]
    assert update(after, changes) == after


def test_update_without_changes_is_the_same_text() -> None:
    text = f"{HEAD}\n# note\n\na=1"
    assert update(text, {}) == update(text, {"a": "1"}) == text


@pytest.mark.parametrize(
    "pair", [("a=b", "1"), ("", "1"), ("#a", "1"), ("a", "1\n2"), ("a", " 1"), ("x.commit", "1"), ("format", "v2")]
)
def test_what_the_format_cannot_hold_is_not_written(pair: tuple[str, str]) -> None:
    with pytest.raises(LockError):
        dump(dict([pair]))
    with pytest.raises(LockError):
        update(HEAD, dict([pair]))


def test_a_comment_cannot_become_a_value() -> None:
    text = dump({"a": "1"}, {"a": "x\nb=2\rc=3"})
    assert parse(text, "x", "x").values == {"format": FORMAT, "a": "1"}


def test_a_public_lock_is_read() -> None:
    lock = parse(
        f"{HEAD}runtime.base.image=example/vllm@sha256:{'1' * 64}\nruntime.transfer=engine-driven shared memory\n"
        f"vllm.commit={'2' * 40}\nvllm.package.tree={'3' * 40}\nflashinfer.jit-cache.wheel.sha256={'4' * 64}\n",
        "r35",
        "locks/r35.source.lock",
    )
    assert len(lock.values) == 6
    assert lock.artifacts() == ()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("input.images/x/a.sha256=\n", "`doit lock:pin:r35` writes it"),
        ("include.images/x/a.sha256=\n", "`doit lock:pin:r35` writes it"),
        ("vllm.commit=de982a50c6a3\n", "abbreviated, it may mean another one tomorrow: `git rev-parse de982a50c6a3`"),
        ("vllm.commit=" + "a" * 64 + "\n", "a repository with sha256 objects cannot be locked"),
        ("vllm.commit=main\n", "`doit lock:update r35 vllm=REF` writes it"),
    ],
)
def test_what_to_do_about_a_hash_that_is_none(body: str, says: str) -> None:
    assert says in refused(HEAD + body).next
