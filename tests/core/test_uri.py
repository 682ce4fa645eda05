"""Goal names."""

import pytest

from sparkbuild.core.goal import Uri, is_uri


@pytest.mark.parametrize(
    ("uri", "key", "text"),
    [
        (Uri("image", "dgx1", "r35"), "", "image://dgx1/r35"),
        (Uri("lane", "4nodes", "dsv41"), "0123456789ab", "lane://4nodes/dsv41@0123456789ab"),
        (Uri("staged", "dgx1", "dsv41/engram"), "0123456789ab", "staged://dgx1/dsv41/engram@0123456789ab"),
    ],
)
def test_print(uri: Uri, key: str, text: str) -> None:
    assert (uri.at(key) if key else str(uri)) == text
    assert is_uri(text)


def test_paths_are_not_goals() -> None:
    assert not is_uri("recipes/demo/recipe.toml")
    assert not is_uri("ftp://dgx1/x")
