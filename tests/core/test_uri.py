"""Goal names."""

import pytest

from sparkbuild.core.uri import Uri, is_uri, parse


@pytest.mark.parametrize(
    ("text", "uri", "key"),
    [
        ("image://dgx1/r35", Uri("image", "dgx1", "r35"), ""),
        ("lane://4nodes/dsv41@0123456789ab", Uri("lane", "4nodes", "dsv41"), "0123456789ab"),
        ("staged://dgx1/dsv41/engram@0123456789ab", Uri("staged", "dgx1", "dsv41/engram"), "0123456789ab"),
    ],
)
def test_parse_and_print(text: str, uri: Uri, key: str) -> None:
    assert parse(text) == (uri, key)
    assert (uri.at(key) if key else str(uri)) == text
    assert is_uri(text)


@pytest.mark.parametrize(
    "text",
    ["", "image:/dgx1/x", "ftp://dgx1/x", "image://dgx1/", "image://dgx1/a b", "image://dgx1/x@xyz", "docs/a.md"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a goal name"):
        parse(text)


def test_paths_are_not_goals() -> None:
    assert not is_uri("recipes/demo/recipe.toml")
    assert not is_uri("ftp://dgx1/x")
