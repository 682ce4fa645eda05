"""One string of a TOML file is changed: nothing else of it, not a byte, and never half of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given, strategies as st

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.toml.edit import find

HEAD = "# a recipe\r\nother = 'image = \"x\"'   # image = 1\n\n"
TAIL = '  # why this one\nmodel = "m"\n[serve]\nimage = "not this"\ncommand = ["""\nimage = "nor this"\n"""]'


def write(root: Path, text: str) -> Path:
    path = root / "recipe.toml"
    path.write_bytes(text.encode())
    return path


LINES = ["# x", "[t]", "[[t]]", "image = 'x'", 'a = """\nimage = "x"\n"""', "b = {image = 1}"]


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ('image = "old"', 'image = "new"'),
        ("image   =\t'old'", "image   =\t'new'"),
        ('"image" = "old"', '"image" = "new"'),
        ('\'image\'= """old"""', '\'image\'= """new"""'),
        ('image = """\nold"""', 'image = """new"""'),
        ("image = '''\r\nold'''", "image = '''new'''"),
        (r'"\u0069mage" = "o\u006cd"', r'"\u0069mage" = "new"'),
    ],
)
def test_only_the_value_changes(tmp_path: Path, line: str, new: str) -> None:
    path = write(tmp_path, HEAD + line + TAIL)
    path.chmod(0o640)
    found = find(path, tmp_path, "image")
    assert (found.value, found.where) == ("old", "recipe.toml:4")
    found.put("new")
    assert path.read_bytes() == (HEAD + new + TAIL).encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["recipe.toml"]


@given(st.lists(st.sampled_from(LINES)))
def test_everything_else_is_as_it_was(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    text = "\n".join(["image = 'old'", *lines, ""])
    try:
        before = tomli.loads(text)
    except tomli.TOMLDecodeError:
        return
    root = tmp_path_factory.mktemp("w")
    path = write(root, text)
    find(path, root, "image").put("new")
    assert tomli.loads(path.read_text()) == before | {"image": "new"}
    assert path.read_text() == text.replace("'old'", "'new'", 1)


def test_deeper_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "[[a]]\nb = 'x'\n[[a]]\nc = {d = ['y', 'z']}\n")
    find(path, tmp_path, "a", 1, "c", "d", 1).put("w")
    assert path.read_text() == "[[a]]\nb = 'x'\n[[a]]\nc = {d = ['y', 'w']}\n"


@pytest.mark.parametrize("text", ["", "image = 1\n", "[image]\nx = 'y'\n", "image = ['x']\n"])
def test_what_is_no_text(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match="`image` is no text that can be changed"):
        find(path, tmp_path, "image")
    assert path.read_text() == text


def test_a_file_that_another_hand_changed(tmp_path: Path) -> None:
    path = write(tmp_path, 'image = "old"\n')
    found = find(path, tmp_path, "image")
    write(tmp_path, 'image = "old" \n')
    with pytest.raises(ConfigError, match=r"recipe\.toml was changed meanwhile; nothing was written"):
        found.put("new")
    assert path.read_text() == 'image = "old" \n'
    write(tmp_path, "image = = 1\n")
    with pytest.raises(ConfigError, match="was changed meanwhile"):
        find(path, tmp_path, "image")


def test_a_file_that_nobody_may_write(tmp_path: Path) -> None:
    path = write(tmp_path, 'a = 1\nimage = "old"\n')
    path.chmod(0o444)
    with pytest.raises(ConfigError, match=r"recipe\.toml cannot be written") as caught:
        find(path, tmp_path, "image").put("new")
    assert (caught.value.where, caught.value.found) == ("recipe.toml:2", "it is read-only")
    assert path.read_text() == 'a = 1\nimage = "old"\n'
    assert [one.name for one in tmp_path.iterdir()] == ["recipe.toml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path, 'image = "old"\n')
    (tmp_path / "link.toml").symlink_to("recipe.toml")
    find(tmp_path / "link.toml", tmp_path, "image").put("new")
    assert (tmp_path / "link.toml").is_symlink()
    assert (tmp_path / "recipe.toml").read_text() == 'image = "new"\n'
