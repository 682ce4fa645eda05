"""`doit lock:update serve:RECIPE`: a tag becomes a digest in the recipe, asked of a real registry on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.registry import Server, registry
from tests.workspace.helpers import FORMAT, IMAGE, REQUIREMENTS, lock_text, put
from tests.workspace_tool import bare

LINE = '# the engine\nimage   = {image}  # "nightly", as they say\n'
REST = "model_id = 'm'\n\n[serve]\nruntime = \"docker\"\r\ncommand = [\"x\"] # image = 'y'\nport = 8000"
OTHER = 'cluster = "local"\nimage = "eng"\nmodel_id = "m"\n[serve]\ncommand = ["x"]\nport = 8001\n'


class Space:
    """A workspace whose recipe `engine` runs in an image of the registry, and whose recipe `own` does not."""

    def __init__(self, root: Path, server: Server) -> None:
        self.tool = bare(root)
        self.server = server
        self.name = f"{server.host}/team/engine"
        self.digest = server.put("team/engine", "nightly", "one")
        self.path = root / "recipes/engine/recipe.toml"
        put(root, "locks/eng.source.lock", lock_text())
        put(root, "images/eng/requirements.lock", REQUIREMENTS)
        put(root, "images/eng/image.toml", IMAGE)
        put(root, "recipes/own/recipe.toml", OTHER)
        self.write(f'"{self.name}:nightly"')

    def text(self, image: str) -> str:
        return 'cluster = "local"\n' + LINE.format(image=image) + REST

    def write(self, image: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.text(image).encode())

    def is_now(self, image: str) -> bool:
        return self.path.read_bytes() == self.text(image).encode() and os.listdir(self.path.parent) == ["recipe.toml"]

    def ok(self, *arguments: str) -> str:
        return self.tool.ok(*arguments).out

    def fails(self, *arguments: str, code: int = 1) -> str:
        done = self.tool.fails(*arguments)
        assert done.code == code, done
        return done.text


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with registry() as server:
        yield Space(tmp_path / "space", server)


def test_the_refusal_names_the_command_that_mends_it(space: Space) -> None:
    refused = space.fails("serve:engine", code=3)
    assert f"{space.name}:nightly is a floating tag" in refused
    assert f"found:  it means {space.digest} now" in refused
    assert refused.rstrip().endswith("next:   `doit lock:update serve:engine` writes that")
    out = space.ok("lock:update", "serve:engine")
    pinned = f"{space.name}:nightly@{space.digest}"
    assert "done  lock:update " in out
    assert "changed recipes/engine/recipe.toml:3\n" in out
    assert f"      image: {space.name}:nightly -> {pinned}\n" in out
    assert space.is_now(f'"{pinned}"')
    assert f'image = "{pinned}"' in refused, "what was announced was written"
    assert "floating" not in space.ok("plan", "serve:engine")


def test_every_recipe_of_a_floating_tag_is_named(space: Space) -> None:
    put(space.tool.root, "recipes/more/recipe.toml", space.text(f'"{space.name}:nightly"'))
    refused = space.fails("serve:engine", code=3)
    assert "`doit lock:update serve:engine` and `doit lock:update serve:more` writes that" in refused


def test_a_tag_is_followed(space: Space) -> None:
    space.ok("lock:update", "serve:engine")
    out = space.ok("lock:update", "serve:engine")
    assert "nothing to change" in out
    assert f"image: nightly still means {space.digest}" in out
    new = space.server.put("team/engine", "nightly", "two")
    dry = space.ok("lock:update", "serve:engine", "--dry-run")
    change = f"image: {space.name}:nightly@{space.digest} -> {space.name}:nightly@{new}"
    assert "recipes/engine/recipe.toml:3 would change; nothing was written" in dry
    assert change in dry
    assert space.is_now(f'"{space.name}:nightly@{space.digest}"')
    assert change in space.ok("lock:update:serve:engine")
    assert space.is_now(f'"{space.name}:nightly@{new}"')
    updates = [entry for entry in space.tool.runs() if entry["event"] == "update"]
    assert [bool(entry["changes"]) for entry in updates] == [True, False, False, True]


def test_another_tag(space: Space) -> None:
    digest = space.server.put("team/engine", "v2", "two")
    space.ok("lock:update", "engine", "image=v2")
    assert space.is_now(f'"{space.name}:v2@{digest}"')
    space.server.put("team/engine", "stable", "two")
    assert "the image is the same: nothing is made anew" in space.ok("lock:update", "serve:engine", "image=stable")
    assert space.is_now(f'"{space.name}:stable@{digest}"')


@pytest.mark.parametrize("form", ["'{}'", '"""{}"""', "'''\n{}'''"])
def test_quotes_stay(space: Space, form: str) -> None:
    space.write(form.format(f"{space.name}:nightly"))
    space.ok("lock:update", "serve:engine")
    assert space.is_now(form.replace("\n", "").format(f"{space.name}:nightly@{space.digest}"))


def test_without_a_tag(space: Space) -> None:
    space.write(f'"{space.name}"')
    assert "no such image or tag" in space.fails("lock:update", "serve:engine")
    latest = space.server.put("team/engine", "latest", "three")
    space.ok("lock:update", "serve:engine")
    assert space.is_now(f'"{space.name}:latest@{latest}"')
    space.write(f'"{space.name}@{latest}"')
    out = space.fails("lock:update", "serve:engine", code=3)
    assert "the image of recipe `engine` follows no tag" in out
    assert "`doit lock:update serve:engine image=TAG`" in out
    space.ok("lock:update", "serve:engine", "image=nightly")
    assert space.is_now(f'"{space.name}:nightly@{space.digest}"')


@pytest.mark.parametrize("token", ["", "t0k"])
def test_a_registry_that_gives_tokens_to_everybody(space: Space, token: str) -> None:
    space.server.token = token
    space.ok("lock:update", "serve:engine")
    assert space.is_now(f'"{space.name}:nightly@{space.digest}"')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve:engin"], "did you mean `engine`?"),
        (["engin"], "did you mean `engine`?"),
        (["serve:own"], "`doit lock:update eng` pins anew what it is made from"),
        (["serve:engine", "serve:own"], "doit lock:update serve:RECIPE [image=TAG] [--dry-run]"),
        (["serve:engine", "imag=v2"], "`image=TAG`, of the image that it runs in"),
        (["serve:engine", "image="], "`image=` names nothing"),
        (["serve:engine", "image=-x"], "`-x` cannot be a tag"),
        (["serve:engine", "image=team/other:v2"], "`team/other:v2` cannot be a tag"),
        (["serve:engine", "image=v9"], "image=TAG takes another"),
    ],
)
def test_nothing_is_written_when_something_is_wrong(space: Space, arguments: list[str], words: str) -> None:
    out = space.fails("lock:update", *arguments, code=1 if "image=v9" in arguments else 3)
    assert words in out
    assert space.is_now(f'"{space.name}:nightly"')


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("401", "the registry wants a login, or has no such image"),
        ("403", "the registry wants a login, or has no such image"),
        ("404", "the registry has no such image or tag"),
        ("503", "the registry does not answer as it should"),
        ("big", "the registry's answer is too big"),
    ],
)
def test_a_registry_that_does_not_tell(space: Space, wrong: str, words: str) -> None:
    space.server.wrong = wrong
    out = space.fails("lock:update", "serve:engine")
    assert words in out
    assert "where:  recipes/engine/recipe.toml:3" in out
    assert f"found:  {space.name}:nightly: " in out
    assert ("docker buildx imagetools inspect" in out) == (wrong in {"401", "403", "503"})
    assert space.is_now(f'"{space.name}:nightly"')


@pytest.mark.parametrize("host", ["127.0.0.1:1", "127.0.0.1:99999"])
def test_a_registry_that_is_not_there(space: Space, host: str) -> None:
    space.write(f'"{host}/team/engine:nightly"')
    out = space.fails("lock:update", "serve:engine")
    assert "the registry cannot be reached" in out
    assert "run again when it answers" in out
    assert space.is_now(f'"{host}/team/engine:nightly"')


def test_a_file_that_changes_while_the_registry_is_asked(space: Space) -> None:
    space.server.meanwhile = lambda: space.write(f"'{space.name}:nightly'")
    space.ok("lock:update", "serve:engine")  # it is looked for after the answer
    assert space.is_now(f"'{space.name}:nightly@{space.digest}'")
    space.server.put("team/engine", "nightly", "two")
    space.server.meanwhile = lambda: space.write(f"'{space.name}:v3'")
    out = space.fails("lock:update", "serve:engine")
    assert "recipes/engine/recipe.toml was changed meanwhile; nothing was written" in out
    assert space.is_now(f"'{space.name}:v3'")
    space.write(f"'{space.name}:nightly'")
    space.server.meanwhile = lambda: shutil.rmtree(space.path.parent, ignore_errors=True)
    assert "recipes/engine/recipe.toml does not exist" in space.fails("lock:update", "serve:engine")
    assert not space.path.exists()


def test_a_read_only_file(space: Space) -> None:
    space.path.chmod(0o444)
    out = space.fails("lock:update", "serve:engine")
    assert "recipes/engine/recipe.toml cannot be written" in out
    assert f'wanted: "{space.name}:nightly@{space.digest}"' in out
    assert space.is_now(f'"{space.name}:nightly"')
    assert "would change" in space.ok("lock:update", "serve:engine", "--dry-run")


@pytest.mark.parametrize("line", ["image = 'a/b:c'\nimage = 'a/b:d'", "image = 7", "imag = 'a/b:c'", "image = 'a/B:c'"])
def test_a_recipe_that_cannot_be_read(space: Space, line: str) -> None:
    put(space.tool.root, "recipes/engine/recipe.toml", space.text("'x'").replace("image   = 'x'", line))
    before = space.path.read_bytes()
    for name in ("serve:engine", "engine"):
        assert "recipes/engine/recipe.toml:" in space.fails("lock:update", name, code=3)
    assert space.path.read_bytes() == before
    assert not space.server.asked


def test_a_lock_of_that_name_goes_before_the_recipe(space: Space) -> None:
    put(space.tool.root, "locks/engine.source.lock", f"{FORMAT}x.image={space.name}:nightly@{space.digest}\n")
    new = space.server.put("team/engine", "nightly", "two")
    assert "locks/engine.source.lock" in space.ok("lock:update", "engine")
    assert space.is_now(f'"{space.name}:nightly"')
    space.ok("lock:update", "serve:engine")
    assert space.is_now(f'"{space.name}:nightly@{new}"')
    put(space.tool.root, "locks/engine.source.lock", "no lock\n")
    assert "locks/engine.source.lock:1" in space.fails("lock:update", "engine")


def test_outdated(space: Space) -> None:
    def rows(*names: str, code: int = 1) -> list[dict[str, str]]:
        done = space.tool("outdated", "--json", *names)
        assert done.code == code, done
        found: list[dict[str, str]] = json.loads(done.out)["rows"]
        return found

    (row,) = rows()
    shown = space.digest[7:19]
    assert (row["lock"], row["component"], row["kind"]) == ("serve:engine", "image", "image")
    assert (row["locked"], row["newest"], row["state"]) == ("nightly", f"nightly {shown}", "newer")
    space.ok("lock:update", "serve:engine")
    (row,) = rows("serve:engine", code=0)
    assert (row["locked"], row["newest"], row["state"]) == (f"nightly {shown}", "", "ok")
    new = space.server.put("team/engine", "nightly", "two")
    assert rows()[0]["newest"] == f"nightly {new[7:19]}"
    assert rows()[0]["updates"] == ["doit lock:update serve:engine"]
    assert rows("eng", code=0) == []
    assert f"serve:engine/image  nightly {shown}" in space.fails("outdated")
    space.server.wrong = "503"
    assert rows()[0]["state"] == "unreachable"
    assert "there is no lock 'serve:own'\n  wanted: eng, serve:engine" in space.fails("outdated", "serve:own", code=3)


def test_outdated_names_the_later_tag_and_the_locked_one(space: Space) -> None:
    first = space.server.put("team/engine", "v1", "one")
    space.write(f'"{space.name}:v1@{first}"')
    space.server.put("team/engine", "v2", "two")
    out = space.fails("outdated").replace("./doitw", "doit")
    assert out.endswith("what takes what is newer:\n  doit lock:update serve:engine image=v2\n")
    now = space.server.put("team/engine", "v1", "three")
    out = space.fails("outdated").replace("./doitw", "doit")
    assert f"v2; v1 moved to {now[7:19]}" in out
    assert out.endswith("  doit lock:update serve:engine image=v2\n  doit lock:update serve:engine\n")
    space.write(f'"{space.name}:v1@sha256:{"1" * 64}"')
    out = space.fails("lock:verify:serve:engine").replace("./doitw", "doit")
    assert "next:   `doit lock:update serve:engine image=v1` pins what the tag v1 is now" in out


def test_verify(space: Space) -> None:
    out = space.fails("lock:verify:serve:engine")
    assert "FAIL serve:engine/image  it is a floating tag" in out
    assert "`doit lock:update serve:engine` pins it" in out
    space.ok("lock:update", "serve:engine")
    assert "ok   serve:engine/image  the registry has the locked manifest" in space.ok("lock:verify:serve:engine")
    space.server.wrong = "503"
    assert "?    serve:engine/image" in space.fails("lock:verify:serve:engine", code=4)
    space.server.wrong = "lies"
    assert "FAIL serve:engine/image" in space.fails("lock:verify:serve:engine")
    space.server.wrong = ""
    put(space.tool.root, "recipes/own/recipe.toml", "cluster = = 1\n")
    put(space.tool.root, "locks/eng.source.lock", FORMAT)
    out = space.fails("lock:verify", code=4)
    assert "ok   serve:engine/image" in out
    assert "?    serve:own/image" in out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("doit lock:update ", {"eng", "serve:engine"}),
        ("doit lock:update serve:en", {"engine"}),
        ("doit outdated e", {"eng"}),
        ("doit lock:up", {"update", *(f"update:{name}" for name in ("eng", "serve:engine"))}),
        ("doit lock:update:serve:", {"engine"}),
        ("doit lock:update eng --", {"--dry-run"}),
        ("doit serve:engine --no", {"--no-wait"}),
        ("doit plan --e", {"--evict"}),
        ("doit verify --", {"--full", "--scrub", "--limit", "--json"}),
        ("doit logs ", {"engine", "own"}),
        ("doit hea", {"health"}),
        ("doit str", set()),
    ],
)
def test_completion_offers_what_can_be_updated(space: Space, line: str, wanted: set[str]) -> None:
    script = (
        'eval "$(doit completion bash)"; COMP_LINE=$1; COMP_POINT=${#1}; COMP_WORDS=(doit); _sparkbuild_complete;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = {**space.tool.env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = ["bash", "-c", script, "bash", line]
    done = subprocess.run(argv, cwd=space.tool.root, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) == wanted
