"""Loading: what is healthy is there, what is broken is named and blocks nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.core.goal import Input
from sparkbuild.workspace.load import load
from tests.workspace.helpers import IMAGE, RECIPE, REQUIREMENTS, digest, healthy, lock_text, put

DEMO = "recipes/demo/recipe.toml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return healthy(tmp_path)


def problem(root: Path, name: str = "recipes/demo") -> ConfigError:
    """The one problem, and everything it does not concern is still there."""
    here = load(root)
    assert list(here.problems) == [name]
    assert "other" in here.recipes
    return here.problems[name]


def broken(root: Path, old: str, new: str) -> ConfigError:
    assert old in RECIPE
    put(root, DEMO, RECIPE.replace(old, new))
    return problem(root)


def test_a_healthy_workspace(root: Path) -> None:
    put(root, "recipes/demo/files/a.txt", "a")
    put(root, DEMO, 'files = ["files/a.txt"]\n' + RECIPE)
    here = load(root)
    assert not here.problems
    assert list(here.recipes) == ["demo", "other"]
    assert here.recipes["demo"].dir == "recipes/demo"
    assert here.recipes["demo"].inputs == (Input("recipes/demo/files/a.txt", digest("a")),)
    assert here.images["eng"].inputs == (Input("images/eng/requirements.lock", digest(REQUIREMENTS)),)
    assert here.images["eng"].lock is here.locks["eng"]
    assert here.nodes_of(here.recipes["demo"]) == ("local",)


def test_nothing_holds_the_path_of_the_checkout(root: Path) -> None:
    here = load(root)
    assert str(root) not in repr((here.images, here.recipes, here.locks, here.config))


def test_an_empty_folder_is_a_workspace_with_the_local_cluster(tmp_path: Path) -> None:
    here = load(tmp_path)
    assert here.config.clusters["local"].nodes == ("local",)
    assert here.config.nodes["local"].connection == "local"
    with pytest.raises(ConfigError, match="no workspace"):
        load(tmp_path / "gone")


def test_local_is_there_beside_ones_own_clusters(root: Path) -> None:
    put(root, "config.toml", '[nodes.dgx1]\nstore = "/srv/models/store"\n[clusters.one]\nnodes = ["dgx1"]\n')
    assert list(load(root).config.clusters) == ["local", "one"]


def test_a_broken_config_is_fatal(root: Path) -> None:
    put(root, "config.toml", "[nodes.dgx1]\n[clusters.a]\nnodes = ['dgx1', 'dgx2', 'dgx1']\n")
    with pytest.raises(ConfigError) as caught:
        load(root)
    assert caught.value.where == "config.toml:3"
    assert "there is no node `dgx2`" in caught.value.found
    assert "did you mean `dgx1`?" in caught.value.found
    assert "twice in the cluster" in caught.value.found


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('"local"', '"lokal"', 1, ("there is no cluster `lokal`", "did you mean `local`?")),
        ('"eng"', '"engg"', 2, ("there is no image `engg`", "did you mean `eng`?")),
        ("artifact:eng/", "artifact:enq/", 12, ("there is no lock `enq`", "did you mean `eng`?")),
        ("eng/weights", "eng/weight", 12, ("no artifact `weight`", "did you mean `weights`?")),
        ("port = 8000", "port = 8000\n[bench]\nimage = 'x'", 9, ("there is no image `x`", "one of: eng")),
    ],
)
def test_references(root: Path, old: str, new: str, line: int, says: tuple[str, str]) -> None:
    error = broken(root, old, new)
    assert error.where == f"{DEMO}:{line}"
    assert says[0] in error.what
    assert error.wanted == says[1]


HARNESS = "port = 8000\n[bench]\nimage = 'box'"


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("port = 8000", HARNESS, 9, "image box is of kind docker, and a harness runs as a process"),
        ("port = 8000", HARNESS.replace("box", "wrap"), 9, "image wrap is of kind dockerfile, and a harness runs as"),
        ('"eng"', '"box"', 5, "image box is of kind docker, and runtime process cannot run it"),
        ("[serve]", '[serve]\nruntime = "docker"', 6, "image eng is of kind venv, and runtime docker cannot run it"),
        ('"eng"', f'"team/x@sha256:{"a" * 64}"', 5, "is of kind docker, and runtime process cannot run it"),
        ('"eng"', '"docker.io/sparkbuild/box:abc"', 2, "this is what docker calls an image of the workspace"),
    ],
)
def test_an_image_of_the_wrong_kind(root: Path, old: str, new: str, line: int, what: str) -> None:
    put(root, "images/box/image.toml", 'kind = "docker"\nlock = "eng"\nfiles = ["x"]\n')
    put(root, "images/box/x", "x")
    put(root, "images/wrap/image.toml", 'kind = "dockerfile"\nlock = "eng"\nbase = "image:box"\n')
    put(root, "images/wrap/Dockerfile.j2", "FROM {{ base }}\n")
    error = broken(root, old, new)
    assert what in f"{error.what} {error.found}"
    assert f"{DEMO}:{line}" in f"{error.where} {error.found}"


def test_an_artifact_that_cannot_be_staged_from_is_told_before_it_is_fetched(root: Path) -> None:
    put(root, "locks/eng.source.lock", lock_text().replace("model.gguf", "model.tar.gz"))
    put(root, "recipes/other/recipe.toml", RECIPE[: RECIPE.index("[[staging]]")])
    error = problem(root)
    assert error.where == f"{DEMO}:12"
    assert error.found == "model.tar.gz"
    assert ".whl or .zip archive, or a plain file" in error.wanted


def test_duplicate_ids(root: Path) -> None:
    staging = RECIPE[RECIPE.index("[[staging]]") :]
    gate = '[[gates]]\nkind = "smoke"\nid = "a"\nprompt = "p"\nexpect = "e"\n'
    put(root, DEMO, RECIPE + staging + gate + gate)
    error = problem(root)
    assert error.what == f"2 mistakes in {DEMO}"
    assert f"{DEMO}:14: two [[staging]] blocks have the id `weights`" in error.found
    assert "the first on line 10" in error.found
    assert f"{DEMO}:24: two [[gates]] blocks have the id `a`" in error.found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.txt", "does not exist"),
        ("../other/recipe.toml", "leads out"),
        ("/etc/hostname", "leads out"),
        ("./a.txt", "plain form"),
        ("folder", "is a folder"),
        ("away", "leads out of recipes/demo/"),
        ("pipe", "not a regular file"),
        ("big", "too big"),
        ("", "cannot be a file name"),
        ("a\\u0000b", "cannot be a file name"),
    ],
)
def test_files_of_a_recipe(root: Path, name: str, says: str) -> None:
    folder = root / "recipes/demo"
    put(folder, "a.txt", "a")
    (folder / "folder").mkdir()
    (folder / "away").symlink_to("../other/recipe.toml")
    os.mkfifo(folder / "pipe")
    with (folder / "big").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    put(root, DEMO, f'files = [\n  "a.txt",\n  "{name}",\n]\n' + RECIPE)
    error = problem(root)
    assert error.where == f"{DEMO}:3"
    assert says in error.what
    assert name != "big" or "staging" in error.next


def test_two_files_of_an_image_under_one_name(root: Path) -> None:
    put(root, "images/eng/a/serve.py", "1")
    put(root, "images/eng/b/serve.py", "2")
    put(root, "images/eng/image.toml", IMAGE + 'files = [\n  "a/serve.py",\n  "b/serve.py",\n]\n')
    error = load(root).problems["images/eng"]
    assert error.where == "images/eng/image.toml:5"
    assert error.found == "a/serve.py and b/serve.py"
    assert "files/serve.py" in error.what


def test_a_swallowed_key_among_the_variables(root: Path) -> None:
    error = broken(root, "port = 8000\n", 'port = 8000\n[serve.env]\nA = "1"\ndescription = "mine"\n')
    assert error.where == f"{DEMO}:10"
    assert error.found.startswith("[serve.env] on line 8 took it")
    put(root, DEMO, RECIPE.replace("port = 8000\n", 'port = 8000\nenv = { port = "1", http_proxy = "x" }\n'))
    assert load(root).recipes["demo"].spec.serve.env["port"] == "1"


def test_a_requirements_file_that_differs_is_its_images_problem(root: Path) -> None:
    put(root, "images/two/requirements.lock", "two")
    put(root, "images/two/image.toml", IMAGE.replace("eng", "two"))
    put(root, "locks/two.source.lock", lock_text("other").replace("/eng/", "/two/"))
    put(root, DEMO, RECIPE.replace('image = "eng"', 'image = "two"'))
    here = load(root)
    assert list(here.problems) == ["images/two", "recipes/demo"]
    error = here.problems["images/two"]
    assert isinstance(error, LockError)
    assert error.where == "locks/two.source.lock:2"
    assert (error.found, error.wanted) == (digest("two"), digest("other"))
    assert "doit lock:pin:two" in error.next
    recipe = here.problems["recipes/demo"]
    assert (recipe.where, recipe.what) == (error.where, error.what), "the cause comes first"
    assert f"so {DEMO} cannot be used: the image `two` it uses has a problem of its own" in recipe.found
    assert str(recipe).count(error.what) == 1
    assert list(here.locks) == ["eng", "two"]  # so that it can be pinned


def test_requirements_the_lock_does_not_pin(root: Path) -> None:
    put(root, "images/two/requirements.lock", "two")
    put(root, "images/two/image.toml", IMAGE)
    error = problem(root, "images/two")
    assert error.where == "images/two/image.toml:1"
    assert error.wanted == f"input.images/two/requirements.lock.sha256={digest('two')}"


def test_a_fabric_that_is_no_network_is_told_while_nodes_are_away(root: Path) -> None:
    put(root, "config.toml", '[nodes.a]\n[nodes.b]\n[clusters.c]\nnodes = ["a", "b"]\nfabric = "banana"\n')
    with pytest.raises(ConfigError) as caught:
        load(root)
    assert caught.value.where == "config.toml:5"
    assert "`fabric` of cluster `c` is no network" in str(caught.value)
    assert "banana" in caught.value.found


def test_a_key_that_is_like_none_gets_no_guess(root: Path) -> None:
    put(root, DEMO, RECIPE + '[serve.docker]\ncgroupns = "host"\n')
    assert "did you mean" not in str(problem(root, "recipes/demo"))


def test_a_folder_among_the_files_of_a_recipe_is_all_that_is_in_it(root: Path) -> None:
    put(root, "recipes/demo/mods/run.sh", "#!/bin/sh\n")
    put(root, "recipes/demo/mods/inner/a.py", "a")
    put(root, "recipes/demo/mods/__pycache__/a.pyc", "x")
    put(root, DEMO, 'files = ["mods", "mods/run.sh"]\n' + RECIPE)
    here = load(root)
    assert [item.path for item in here.recipes["demo"].inputs] == [
        "recipes/demo/mods/inner/a.py",
        "recipes/demo/mods/run.sh",
    ]
    (root / "recipes/demo/mods/out").symlink_to("/etc")
    assert "recipes/demo/mods/out is a link that leads out" in str(problem(root, "recipes/demo"))
    (root / "recipes/demo/mods/out").unlink()
    (root / "recipes/demo/empty").mkdir()
    put(root, DEMO, 'files = ["empty"]\n' + RECIPE)
    assert "recipes/demo/empty is a folder without a file" in str(problem(root, "recipes/demo"))


def test_an_image_with_several_mistakes(root: Path) -> None:
    put(root, "images/two/image.toml", 'kind = "venv"\nlock = "egn"\nfiles = ["gone"]\n')
    error = problem(root, "images/two")
    assert error.what == "3 mistakes in images/two/image.toml"
    assert "did you mean `eng`?" in error.found


def test_a_broken_lock_takes_its_image_and_their_recipes_only(root: Path) -> None:
    put(root, "locks/two.source.lock", "nonsense\n")
    put(root, "images/two/image.toml", IMAGE.replace("eng", "two"))
    put(root, "images/two/requirements.lock", "two")
    put(root, DEMO, RECIPE.replace("artifact:eng", "artifact:two").replace('image = "eng"', 'image = "two"'))
    here = load(root)
    assert list(here.problems) == ["locks/two", "images/two", "recipes/demo"]
    assert "mend locks/two first" in here.problems["images/two"].next
    recipe = here.problems["recipes/demo"]
    assert "the lock `two` it uses has a problem" in recipe.found
    assert "the image `two` it uses has a problem" in recipe.found
    assert (recipe.where, recipe.what) == (here.problems["locks/two"].where, here.problems["locks/two"].what)
    assert str(recipe).count(recipe.what) == 1, "once, whatever uses it"
    assert list(here.recipes) == ["other"]


@pytest.mark.parametrize("name", ["two words", "-x", "a" * 65, "a\nb", "ü", os.fsdecode(b"\xff")])
def test_names(root: Path, name: str) -> None:
    put(root, f"recipes/{name}/recipe.toml", RECIPE)
    (key,) = load(root).problems
    assert key.startswith("recipes/")
    assert key.isprintable()
    str(load(root).problems[key]).encode()


def test_what_is_not_a_recipe_is_left_alone_and_what_cannot_be_read_is_told(root: Path) -> None:
    (root / "recipes/notes").mkdir()
    put(root, "recipes/README.md", "x")
    put(root, "recipes/.hidden/recipe.toml", "x")
    assert not load(root).problems
    (root / "recipes/notes/recipe.toml").symlink_to("gone")
    assert "is a link to nothing" in problem(root, "recipes/notes").what


def test_two_recipes_may_share_a_port(root: Path) -> None:
    ports = [recipe.spec.serve.port for recipe in load(root).recipes.values()]
    assert ports == [8000, 8000]


@pytest.mark.parametrize("store", ["", ".", "/", "images", "recipes/x", "~/store", "../elsewhere"])
def test_a_store_must_be_a_folder_of_its_own(tmp_path: Path, store: str) -> None:
    (tmp_path / "config.toml").write_text(f'[nodes.local]\nconnection = "local"\nstore = "{store}"\n')
    with pytest.raises(ConfigError, match="would lie among other things") as raised:
        load(tmp_path)
    assert raised.value.where == "config.toml:3"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('capabilities = ["IPC_LOK"]', "did you mean `IPC_LOCK`?"),
        ('capabilities = ["CAP_SYS_NICE", "sys_ptrace", "ALL"]', ""),
        ("ulimits = { nofle = 1 }", "did you mean `nofile`?"),
        ("ulimits = { memlock = -1, nofile = 9 }", ""),
        ("memory = 1000", "at least 6291456 bytes (6 MiB), or 0 for no limit"),
        ("memory = 6291456", ""),
        ("cpus = 0.001", "at least 0.01, or 0 for all"),
    ],
)
def test_what_docker_refuses_everywhere(root: Path, lines: str, says: str) -> None:
    put(root, DEMO, f"{RECIPE}\n[serve.docker]\n{lines}\n")
    found = load(root).problems.get("recipes/demo")
    assert (says in str(found)) if says else found is None, found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('[serve.env]\n"A=B" = "x"\n', "`A=B` cannot be a name"),
        ('[serve.env]\n"" = "x"\n', "`` cannot be a name"),
        ('[serve.env]\n"A\\nB" = "x"\n', "cannot be a name"),
        ('[serve.env]\nSPARKBUILD_LANE = "x"\n', "SPARKBUILD_LANE is ours"),
        ('[serve.env]\nA = "a\\u0000b"\n', "text without the character NUL"),
    ],
)
def test_what_no_program_can_be_started_with_is_a_mistake_of_the_recipe(root: Path, line: str, told: str) -> None:
    """A launch would stop the lane that serves, and then fail."""
    assert told in str(broken(root, "port = 8000\n", f"port = 8000\n{line}"))


def test_an_argument_that_ends_in_the_middle_is_a_mistake_of_the_recipe(root: Path) -> None:
    error = broken(root, "port = 8000\n", 'port = 8000\nargs = ["--x", "a\\u0000b"]\n')
    assert "text without the character NUL" in str(error)


def test_requirements_that_are_no_text(root: Path) -> None:
    image = next(path for path in (root / "images").iterdir() if (path / "requirements.lock").exists())
    (image / "requirements.lock").write_bytes(b"# one\n\xff\n")
    assert "requirements.lock is not UTF-8" in str(load(root).problems[f"images/{image.name}"])
