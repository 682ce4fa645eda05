"""[[staging]] blocks of a recipe against the cluster, the locks and each other: what is wrong is told with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
import tomli

from sparkbuild.workspace.load import load
from sparkbuild.workspace.recipes.rows import EXAMPLE
from sparkbuild.workspace.shapes.schema import Config, DockerfileImage, DockerImage, RecipeFile, VenvImage
from sparkbuild.workspace.shapes.stagingschema import RowsStaging, Split
from tests.workspace.helpers import RECIPE, healthy, put

HEAD = RECIPE[: RECIPE.index("[[staging]]")]
HUB = '[[staging]]\nid = "hub"\nkind = "hub-mirror"\nsrc = "/srv/models/hub"\nrepos = ["org/one"]\n'
ROWS = '[[staging]]\nid = "rows"\nkind = "sparse-rows"\nsrc = "/srv/models/hub"\nrepos = ["org/one"]\n'
FILES = '[[staging]]\nid = "files"\nkind = "files"\n'
TREE = '[[staging.exports]]\nkind = "tree"\nid = "model"\ntarget = "/model"\n'
COMPOSED = '[[staging.exports]]\nkind = "composed"\nid = "whole"\ntarget = "/model"\nover = ["rows"]\n'


def problem(tmp_path: Path, blocks: str) -> str:
    root = healthy(tmp_path)
    put(root, "recipes/demo/recipe.toml", HEAD + blocks)
    found = load(root).problems.get("recipes/demo")
    return str(found) if found else ""


@pytest.mark.parametrize(
    "blocks",
    [
        HUB,
        HUB + TREE,
        HUB + COMPOSED + ROWS,
        ROWS,
        ROWS + 'split = "heads"\nlayout = "sparse-copy"\ncomplete_shard = true\n',
        ROWS + "split = [[0, 12]]\n",
        ROWS + "split = { 1 = [[0, 12]], 14 = [[0, 13]] }\n",
        FILES + 'src = "/srv/models/x"\nskip = ["*.pt"]\n',
        FILES + f'src = "https://example.org/x.gguf?a=1"\nsha256 = "{"5" * 64}"\n',
    ],
)
def test_in_order(tmp_path: Path, blocks: str) -> None:
    assert problem(tmp_path, blocks) == ""


@pytest.mark.parametrize(
    ("blocks", "texts"),
    [
        (HUB.replace("org/one", "no space"), ["repos"]),
        (FILES + 'src = "Qwen/Qwen3-8B"\n', ['kind = "hub-mirror" with repos = ["org/name"]', "Qwen/Qwen3-8B"]),
        (HUB.replace('["org/one"]', "[]"), ["repos"]),
        (HUB.replace('["org/one"]', '["org/one", "org/one"]'), ["a repository stands there twice", '"org/one"']),
        (
            HUB.replace('["org/one"]', '["acme", "acme/one/x", "", "org/two"]') + TREE,
            ["item 2 of `repos`", "item 3 of `repos`", "no `repo`", 'wanted: "acme", "org/two"\n'],
        ),
        (
            HUB.replace('["org/one"]', '["org/one", "org/two"]') + f'revision = "{"a" * 40}"\n',
            ["one commit cannot be the revision of several repositories"],
        ),
        (HUB.replace('["org/one"]', '["org/one", "org/two"]') + TREE, ["`repo` says of which repository it is"]),
        (HUB + TREE + 'repo = "org/two"\n', ["a repository that the block does not have", "org/two"]),
        (HUB + TREE.replace('"/model"', '"model"'), ["`target` is no absolute path"]),
        (HUB + TREE + TREE, ["two exports have the id `model`"]),
        (HUB + COMPOSED, ["`rows` cannot be laid over a snapshot", "files or sparse-rows"]),
        (HUB + TREE + 'dst = "/data"\n', ["`dst`", "[[staging]]"]),
        (HUB.replace("/srv", "srv"), ["`src` does not fit", 'such as "/srv/models/hub"']),
        (ROWS + "only_ranks = [4]\n", ["there is no such rank", "has 1 node\n"]),
        (
            ROWS.replace('repos = ["org/one"]\n', 'revision = "main"\n'),
            [
                "`revision` is of a repository in a hub cache, and the block names none",
                "take `revision` out",
                "toml:13",
            ],
        ),
        (ROWS + "complete_shard = true\n", ["`complete_shard` is for the layout sparse-copy"]),
        (ROWS + "split = [[0, 5], [5, 9]]\n", ["the split does not fit the cluster", "2 ranges"]),
        (
            ROWS + "split = [[3, 9]]\n",
            ["split leaves rows out", "rows 0 to 2", "next:   have the range of rank 0 begin at 0: [0, 9]"],
        ),
        (ROWS + "split = { 1 = [[0, 9]], 14 = [[1, 9]] }\n", ["rows 0 to 0 are in no range"]),
        (ROWS + "split = [[12, 9]]\n", ["a range of split that is none", "[12, 9] of rank 0"]),
        (ROWS + "split = [[0, 5], [5]]\n", ["`split` does not fit", "[[0,5],[5]] (a list)", "[[0, 100], [100, 250]]"]),
        (ROWS + "split = { layer = [[0, 9]] }\n", ["`layer` is no layer", EXAMPLE]),
        (
            ROWS + "layers = [1, 15]\nsplit = { 1 = [[0, 9]] }\n",
            ["no ranges for layer 15", "ranges for layer 1;", EXAMPLE],
        ),
        (ROWS + "layers = [1, 1]\n", ["a layer stands there twice"]),
        (
            ROWS + "skip = ['a']\n",
            ["`skip` is a key of kind files or hub-mirror", "keys of kind sparse-rows: bwlimit,"],
        ),
        (
            FILES + 'src = "/srv/x"\n' + TREE,
            ["`exports` is a key of kind hub-mirror", "this [[staging]] is of kind files"],
        ),
        (
            HUB + TREE + 'over = ["x"]\n',
            ["`over` is a key of kind composed", "this [[staging.exports]] is of kind tree"],
        ),
        (FILES + 'src = "/srv/x"\nexport = 1\n', ["did you mean `exports` of kind hub-mirror?"]),
        (HUB + TREE + 'binds = ["x"]\n', ["binds files of the source, which only a container can have", "toml:18"]),
        (ROWS + 'split = "evenly"\n', ["split"]),
        (ROWS.replace('["org/one"]', '["org/one", "org/two"]'), ["repos"]),
        (FILES + 'src = "https://example.org/x.gguf"\n', ["a URL wants the sha256"]),
        (FILES + f'src = "https://example.org/"\nsha256 = "{"5" * 64}"\n', ["a URL that names no file"]),
        (FILES + f'src = "https://example.org/x.tar"\nsha256 = "{"5" * 64}"\n', ["cannot be staged from", "x.tar"]),
        (
            FILES + f'src = "https://example.org/one.bin"\nsha256 = "{"5" * 64}"\nmembers = ["*.bin", "*.gguf"]\n',
            ['"*.gguf" does not match the one file', "found:  one.bin", "take `members` out"],
        ),
        (FILES + f'src = "https://example.org/x.gguf"\nsha256 = "{"0" * 64}"\n', ["is a placeholder", "sha256sum"]),
        (FILES + 'src = "https://u:p@example.org/x.gguf"\n', ["cannot be used", "//...@example.org", "needs no login"]),
        (FILES + f'src = "/srv/models/x"\nsha256 = "{"5" * 64}"\n', ["`sha256` is for a URL"]),
        (FILES + 'src = "artifact:demo/model"\nskip = ["*"]\n', ["`skip` is for a folder"]),
        (FILES + 'src = "srv/models/x"\n', ["`src` does not fit", '("artifact:demo/smollm2")', '("/srv/models/x")']),
        (HUB.replace("hub-mirror", "hub-miror"), ["did you mean `hub-mirror`?"]),
    ],
)
def test_out_of_order(tmp_path: Path, blocks: str, texts: list[str]) -> None:
    found = problem(tmp_path, blocks)
    assert "recipes/demo/recipe.toml:" in found
    for text in texts:
        assert text in found
    assert "regex" not in found


def test_ranges_that_overlap(tmp_path: Path) -> None:
    """Told where each rank has one; of another number of ranges, that is told alone."""
    overlapping = ROWS + "split = [[0, 9], [5, 12]]\n"
    assert "begin at" not in problem(tmp_path, overlapping)
    put(tmp_path, "config.toml", '[nodes.dgx1]\n[nodes.dgx2]\n[clusters.two]\nnodes = ["dgx1", "dgx2"]\n')
    put(tmp_path, "recipes/demo/recipe.toml", HEAD.replace('"local"', '"two"') + overlapping)
    found = str(load(tmp_path).problems["recipes/demo"])
    for text in ("ranks 0 and 1 overlap in split", "rows 5 to 8", "begin at 9: [9, 12]"):
        assert text in found


@pytest.mark.parametrize("first", ["[-1, 100]", "[100, 7]"])
def test_of_ranges_that_are_none_that_is_told_alone(tmp_path: Path, first: str) -> None:
    put(tmp_path, "config.toml", '[nodes.dgx1]\n[nodes.dgx2]\n[clusters.two]\nnodes = ["dgx1", "dgx2"]\n')
    text = f"{ROWS}split = [{first}, [100, 2586]]\n"
    put(tmp_path, "recipes/demo/recipe.toml", HEAD.replace('"local"', '"two"') + text)
    found = str(load(tmp_path).problems["recipes/demo"])
    assert f"{first} of rank 0" in found
    assert "begin at" not in found
    assert "no range" not in found
    assert "overlap" not in found


def patterns(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """Every annotation below a shape that has a pattern."""
    if get_origin(kind) is Annotated and any(getattr(one, "pattern", None) for one in kind.__metadata__):
        yield kind
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
        seen.add(kind)
        for field in msgspec.structs.fields(kind):
            yield from patterns(field.type, seen)
    for inner in get_args(kind):
        yield from patterns(inner, seen)


def test_no_reader_is_shown_a_pattern() -> None:
    seen: set[Any] = set()
    shapes = (Config, VenvImage, DockerImage, DockerfileImage, RecipeFile)
    found = [kind for shape in shapes for kind in patterns(shape, seen)]
    assert len(found) > 20
    assert all(any(getattr(one, "description", None) for one in kind.__metadata__) for kind in found)


def test_the_shown_example_is_one(tmp_path: Path) -> None:
    """Of two ranks, so it is held against the shape, and against the rules for a cluster of two."""
    value = tomli.loads(EXAMPLE)["split"]
    assert msgspec.convert(value, Split) == {"1": ((0, 100), (100, 250))}
    found = problem(tmp_path, f"{ROWS}{EXAMPLE}\n")
    assert "the split does not fit the cluster" in found
    assert "mistakes" not in found, "nothing else is wrong with it"
    (description,) = (one.description for one in Split.__metadata__ if one.description)
    for text in ("[[0, 100], [100, 250]]", "{ 1 = [[0, 100], [100, 250]] }"):
        assert text in description
        block = tomli.loads(f'id = "x"\nkind = "sparse-rows"\nsrc = "/srv/models/hub"\nsplit = {text}\n')
        assert msgspec.convert(block, RowsStaging).split


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """What does not fit the shape, and what does not fit the rest: nobody is to be sent back twice."""
    found = problem(
        tmp_path,
        '[[staging]]\nid = "my weights"\nkind = "sparse-rows"\nsrc = "srv/hub"\nlayout = "pack"\nsplit = [[1, 9]]\n'
        + ROWS
        + 'only_ranks = [3]\nskip = ["a"]\n'
        + HUB.replace("hub-mirror", "hub-miror")
        + TREE.replace('"/model"', '"model"')
        + FILES
        + 'src = "x"\nsha256 = "1"\n',
    )
    assert found.startswith("10 mistakes in recipes/demo/recipe.toml")
    told = [line.split(": ", 1)[1] for line in found.splitlines() if "recipe.toml:" in line and "where" not in line[:8]]
    assert [what.split(": ", 1)[-1] for what in told] == [
        "`id` does not fit in [[staging]]",
        "`src` does not fit in [[staging]]",
        "`layout` does not fit in [[staging]]",
        "split leaves rows out",
        "there is no such rank",
        "`skip` is a key of kind files or hub-mirror, and this [[staging]] is of kind sparse-rows",
        "`kind` of [[staging]] is not known",
        "`target` is no absolute path",
        "`src` does not fit in [[staging]]",
        "`sha256` does not fit in [[staging]]",
    ]


def test_what_cannot_be_read_has_no_second_mistake(tmp_path: Path) -> None:
    twice = '[[staging]]\nkind = "files"\nsrc = "/srv/x"\n' * 2
    assert problem(tmp_path, twice).startswith("2 mistakes"), "ids that are missing are not equal ones"
    found = problem(tmp_path, FILES + f'src = "srv/x"\nsha256 = "{"5" * 64}"\n')
    assert found.startswith("`src` does not fit"), "nobody knows whether it was to be a URL"
    found = problem(tmp_path, '[[staging]]\nid = "x"\nkind = "other"\nsrc = 3\n' + HUB + HUB)
    assert found.startswith("2 mistakes")
    assert "two [[staging]] blocks have the id `hub`" in found


def test_a_recipe_that_is_broken_at_its_top_has_its_blocks_checked_too(tmp_path: Path) -> None:
    root = healthy(tmp_path)
    put(
        root,
        "recipes/demo/recipe.toml",
        HEAD.replace('cluster = "local"\n', "portt = 1\n") + ROWS + "split = [[1, 9]]\n",
    )
    found = str(load(root).problems["recipes/demo"])
    assert found.startswith("3 mistakes")
    for text in ("`cluster` is missing", "unknown key `portt`", "split leaves rows out"):
        assert text in found
    assert "there is no cluster" not in found


@pytest.mark.parametrize(
    ("target", "text", "better"),
    [
        ("/", "is the root of the container", "/model"),
        ("//", "is not written out", "/model"),
        ("/proc", "is in /proc, which is the kernel's", "/model"),
        ("/sys/x", "is in /sys, which is the kernel's", "/model"),
        ("/dev", "is in /dev, which is the kernel's", "/model"),
        ("/a/../b", "is not written out", "/b"),
        ("/a//b", "is not written out", "/a/b"),
        ("/x/../proc/y", "is not written out", "/model"),
        ("a/./b", "is no absolute path", "/a/b"),
    ],
)
def test_where_no_export_is_seen(tmp_path: Path, target: str, text: str, better: str) -> None:
    found = problem(tmp_path, HUB + TREE.replace('"/model"', f'"{target}"'))
    assert f"`target` {text}" in found
    assert f'found:  "{target}"' in found
    assert f'next:   target = "{better}"' in found


@pytest.mark.parametrize("target", ["/model", "/model/", "/srv/models/a", "/devices", "/opt/..x"])
def test_where_an_export_is_seen(tmp_path: Path, target: str) -> None:
    assert problem(tmp_path, HUB + TREE.replace('"/model"', f'"{target}"')) == ""
