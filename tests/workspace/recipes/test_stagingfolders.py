"""Folders that nothing can be staged into: told with the line, before a node is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparkbuild.agent
from sparkbuild.agent.wire import layout
from sparkbuild.nodes.relay.relay import INCOMING
from sparkbuild.workspace.load import load
from sparkbuild.workspace.recipes.folders import TAKEN
from tests.workspace.helpers import RECIPE, healthy, put

HEAD = RECIPE[: RECIPE.index("[[staging]]")]
FILES = '[[staging]]\nid = "files"\nkind = "files"\nsrc = "/srv/models/x"\ndst = "{dst}"\n'
HUB = '[[staging]]\nid = "hub"\nkind = "hub-mirror"\nsrc = "/srv/models/hub"\nrepos = ["org/one"]\n'
TREE = '[[staging.exports]]\nkind = "tree"\nid = "model"\ntarget = "/model"\npath = "{path}"\n'


def problem(tmp_path: Path, blocks: str) -> str:
    root = healthy(tmp_path)
    put(root, "recipes/demo/recipe.toml", HEAD + blocks.replace("ROOT", str(root)))
    found = load(root).problems.get("recipes/demo")
    return str(found) if found else ""


@pytest.mark.parametrize(
    ("dst", "text"),
    [
        (".", "it is the store itself"),
        ("staged/..", "it is the store itself"),
        ("../../x", "it leads out of the store"),
        ("staged/../../x", "it leads out of the store"),
        ("~/x", "`~` is not resolved"),
        ("~", "`~` is not resolved"),
        ("/", "it is the root of the file system"),
        ("//", "it is the root of the file system"),
        ("artifacts", "artifacts in the store of local is for other things of sparkbuild"),
        ("staged/../lanes/x", "lanes in the store of local"),
        ("staged", "staged in the store of local has a folder for each block in it"),
        ("exported/", "exported in the store of local has a folder for each block in it"),
        ("x/../staged/.", "staged in the store of local has a folder for each block in it"),
        ("ROOT/.sparkbuild/node/staged", "staged in the store of local has a folder for each block in it"),
        ("incoming/x", "incoming in the store of local is for other things of sparkbuild"),
        ("ROOT/recipes", "recipes of the workspace is for what you write"),
        ("ROOT/recipes/demo/data", "recipes of the workspace is for what you write"),
        ("ROOT/x/../images/x", "images of the workspace is for what you write"),
        ("ROOT/locks", "locks of the workspace is for what you write"),
        ("ROOT/.git/x", ".git of the workspace is for what you write"),
        ("ROOT/.sparkbuild/node/staged-index", "staged-index in the store of local"),
        ("ROOT/.sparkbuild/node", "it is the store of local"),
        ("ROOT/.sparkbuild", ".sparkbuild is what staging keeps for itself"),
        ("ROOT/x/../.sparkbuild/node/staged/..", "it is the store of local"),
        ("ROOT", "the store of local is in it"),
        ("ROOT/..", "the store of local is in it"),
        ("/srv/x/.sparkbuild/y", ".sparkbuild is what staging keeps for itself"),
    ],
)
def test_no_folder_to_stage_into(tmp_path: Path, dst: str, text: str) -> None:
    for key, blocks in (("dst", FILES.format(dst=dst)), ("path", HUB + TREE.format(path=dst))):
        found = problem(tmp_path / key, blocks)
        assert text in found
        line = HEAD.count("\n") + blocks[: blocks.index(f"\n{key} = ")].count("\n") + 2
        assert f"recipes/demo/recipe.toml:{line}" in found
        assert f"`{key}` is no folder to stage into" in found
        assert f"correct `{key}`" in found


@pytest.mark.parametrize(
    "dst",
    [
        "staged/x",
        "exported/x",
        "recipes",
        "mine",
        "mine/x",
        "/srv/models/y",
        "/srv/models/xy",
        "ROOT/data",
        "ROOT/recipes.d",
        "..x",
    ],
)
def test_folders_that_are_meant(tmp_path: Path, dst: str) -> None:
    assert problem(tmp_path, FILES.format(dst=dst)) == ""


@pytest.mark.parametrize("dst", ["/srv/models/x", "/srv/models/y/../x", "/srv/models/x/staged", "/srv/models", "/srv"])
def test_the_source_is_somewhere_else(tmp_path: Path, dst: str) -> None:
    assert "`dst` and `src`" in problem(tmp_path, FILES.format(dst=dst))


@pytest.mark.parametrize("path", ["/srv/models/hub", "/srv/models/hub/models--org--one", "/srv/models"])
def test_an_export_is_not_in_the_source(tmp_path: Path, path: str) -> None:
    assert "`path` and `src`" in problem(tmp_path, HUB + TREE.format(path=path))


def test_a_mirror_is_a_folder_of_its_own(tmp_path: Path) -> None:
    assert "`dst` and `src` are the same folder" in problem(tmp_path / "a", HUB + 'dst = "/srv/models/hub/"\n')
    assert "`dst` and `src` overlap" in problem(tmp_path / "b", HUB + 'dst = "/srv/models/hub/mine"\n')
    assert problem(tmp_path / "c", HUB + 'dst = "/srv/models"\n') == ""  # the mirror is /srv/models/models--org--one


def test_the_folders_of_the_store_are_known() -> None:
    """What the agent keeps in a store is not to be staged into."""
    folder = Path(sparkbuild.agent.__file__).parent
    text = "".join(path.read_text() for path in sorted(folder.rglob("*.py")))
    found = set()
    for before in ('os.path.join(store, "', 'os.path.join(request["store"], "'):
        found |= {part.partition('"')[0] for part in text.split(before)[1:]}
    assert {"artifacts", "lanes", "images"} <= found
    assert {*found, INCOMING, layout.STAGED_INDEX} <= set(TAKEN)


def test_members_that_name_nothing(tmp_path: Path) -> None:
    told = problem(tmp_path, FILES.format(dst="/srv/models/y") + "members = []\n")
    assert "`members` is empty" in told
    assert "without it, all is staged" in told
