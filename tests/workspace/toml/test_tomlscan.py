"""The scanner finds every key the TOML library finds, and the line it was written on."""

from __future__ import annotations

from typing import Any

import tomli
from hypothesis import given, strategies as st

from sparkbuild.workspace.toml.scan import Path, scan

BARE = st.from_regex(r"[A-Za-z0-9_-]{1,3}", fullmatch=True)
QUOTED = st.sampled_from(['"a b"', "'c.d'", '"x\\"]="', "''", '"#"', '"\\u00e9"'])
KEY = st.one_of(BARE, QUOTED)
MULTILINE = [
    '"""\nline\n[table]\nk = 1\n"""',
    "'''\n# no\n]'''",
    '"""a"b""c"""',
    '""""q"""""',
    '"""\\\n  x"""',
    "''''x''''",
]
SCALAR = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        "inf",
        "1979-05-27 07:32:00Z",
        '"t"',
        "'l'",
        '""',
        '"# = [x]"',
        "'a \"b'",
        '"\\\\"',
        '"\\""',
        *MULTILINE,
    ]
)
GAP = st.sampled_from(["", " ", "\n", " # c ] } \n", "\n\n"])
FLAT = st.sampled_from(["", " ", "\t"])


def _array(items: list[str], gap: str, last: str) -> str:
    return "[" + gap + f",{gap}".join(items) + (last if items else "") + gap + "]"


def _inline(pairs: list[tuple[str, str]], gap: str) -> str:
    unique = {str(tomli.loads(f"{key}=1")): (key, value) for key, value in pairs}
    return "{" + gap + f",{gap}".join(f"{key}{gap}={gap}{value}" for key, value in unique.values()) + gap + "}"


VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=3), GAP, st.sampled_from(["", ",", " ,"])),
        st.builds(_inline, st.lists(st.tuples(KEY, inner), max_size=3), FLAT),
    ),
    max_leaves=6,
)
DOTTED = st.lists(KEY, min_size=1, max_size=3).map(" . ".join)
LINE = st.one_of(
    st.builds("{} = {}".format, DOTTED, VALUE),
    st.builds("[{}]".format, DOTTED),
    st.builds("[[ {} ]] # h".format, DOTTED),
    st.sampled_from(["", "# comment [x] a = 1", "   "]),
)


def places(value: Any, path: Path = ()) -> set[Path]:
    found = {path} if path else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found |= places(inner, (*path, key))
    return found


def valid(lines: list[str]) -> list[str]:
    """The lines that keep the document valid TOML, each added only if the whole still parses."""
    kept: list[str] = []
    for line in lines:
        try:
            tomli.loads("\n".join([*kept, line]))
        except tomli.TOMLDecodeError:
            continue
        kept.append(line)
    return kept


@given(st.lists(LINE, max_size=12), st.booleans())
def test_finds_every_key_and_no_other(lines: list[str], windows: bool) -> None:
    text = "\n".join(valid(lines))
    if windows:
        text = text.replace("\n", "\r\n")
    assert set(scan(text).spots) == places(tomli.loads(text))


@given(st.lists(LINE, max_size=12))
def test_a_new_key_is_on_the_line_that_brought_it(lines: list[str]) -> None:
    kept = valid(lines)
    spots = scan("\n".join(kept)).spots
    seen: set[Path] = set()
    for count in range(1, len(kept) + 1):
        now = places(tomli.loads("\n".join(kept[:count])))
        start = "\n".join(kept[: count - 1]).count("\n") + (2 if count > 1 else 1)
        end = "\n".join(kept[:count]).count("\n") + 1
        for path in now - seen:
            # A table may get its own header later than the first table inside it; then that header counts.
            assert start <= spots[path].line <= end or (spots[path].line > end and kept[count - 1].startswith("["))
        seen |= now


def texts(value: Any, path: Path = ()) -> dict[Path, str]:
    """The strings of a document, by their keys."""
    if isinstance(value, str):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {where: text for key, inner in items for where, text in texts(inner, (*path, key)).items()}


@given(st.lists(LINE, max_size=12), st.booleans())
def test_every_string_is_where_it_says(lines: list[str], windows: bool) -> None:
    text = "\n".join(valid(lines))
    if windows:
        text = text.replace("\n", "\r\n")
    found = {path: tomli.loads(f"k = {text[start:end]}")["k"] for path, (start, end) in scan(text).strings.items()}
    assert found == texts(tomli.loads(text))


def test_lines_by_hand() -> None:
    top = 'a = """\n[x]\n"""\nb = [\n  1, # ]\n  { c = 2 },\n]\n'
    document = scan(top + "[t]\nd.e = 1\n[[g]]\nid = 1\n[g.p]\nq = 1\n[[g]]\nid = 2\n[t.u]\n")
    lines = {path: spot.line for path, spot in document.spots.items()}
    assert lines[("b",)] == 4
    assert lines[("b", 1, "c")] == 6
    assert lines[("t", "d", "e")] == 9
    assert lines[("g", 0, "p", "q")] == 13
    assert lines[("g", 1, "id")] == 15
    assert [header.text for header in document.headers] == ["[t]", "[[g]]", "[g.p]", "[[g]]", "[t.u]"]
    assert document.line(("g", 1, "missing")) == 14
    assert document.line(("nowhere",)) == 1


@given(st.text(max_size=60))
def test_never_fails_itself(text: str) -> None:
    scan(text)
