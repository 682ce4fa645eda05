"""Staging from a URL that a recipe pins itself: what is wanted is its name and its content, not where it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.cutting_server import CuttingServer, serving
from tests.plugin.models import Models

DATA = b"some weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def server() -> Iterator[CuttingServer]:
    with serving() as running:
        running.files.update({"one.bin": DATA, "two.bin": DATA})
        yield running


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path / "models")


def recipe(models: Models, name: str, url: str, more: str = "", sha256: str = SHA) -> None:
    """Recipe NAME stages `url` as block `data`."""
    models.recipe(name, {})
    path = models.root / f"recipes/{name}/recipe.toml"
    block = f'src = "{url}"\nsha256 = "{sha256}"\n{more}\n'
    path.write_text(path.read_text().replace(f'src = "{models.source(name)}"\n', block))


def staged(models: Models, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in models.folder(name).iterdir() if path.is_file()}


def test_another_name_of_the_same_content_is_another_wish(models: Models, server: CuttingServer) -> None:
    recipe(models, "one", f"{server.url}/files/one.bin")
    models.ok("stage:one")
    assert staged(models, "one") == {"one.bin": DATA}
    recipe(models, "one", f"{server.url}/files/two.bin")
    assert "one.bin -> two.bin" in models.ok("plan", "stage:one").out
    asked = len(server.asked)
    models.ok("stage:one")
    assert staged(models, "one") == {"two.bin": DATA}
    assert len(server.asked) == asked, "the content was there"


def test_two_recipes_call_the_same_content_by_two_names(models: Models, server: CuttingServer) -> None:
    recipe(models, "one", f"{server.url}/files/one.bin")
    recipe(models, "two", f"{server.url}/files/two.bin?download=1")
    models.ok("stage")
    assert (staged(models, "one"), staged(models, "two")) == ({"one.bin": DATA}, {"two.bin": DATA})
    assert len(server.asked) == 1
    assert [path.read_bytes() for path in (models.store / "artifacts").rglob("file")] == [DATA]


def test_other_content_names_the_recipe(models: Models, server: CuttingServer) -> None:
    recipe(models, "one", f"{server.url}/files/one.bin", sha256="5" * 64)
    out = models.fails("stage:one").out
    assert "what was fetched is not what recipes/one/recipe.toml pins" in out
    assert "before you change its sha256 in recipes/one/recipe.toml" in out
    assert ".source.lock" not in out
    assert "as pinned in recipes/one/recipe.toml" in models.ok("list", "--all").out


def test_a_url_that_is_gone_says_where_it_stands(models: Models, server: CuttingServer) -> None:
    recipe(models, "one", f"{server.url}/files/three.bin")
    out = models.fails("stage:one").out
    assert "the server says HTTP 404" in out
    assert "next:   look whether it is still there, by another name: correct its URL in recipes/one/recipe.toml" in out


@pytest.mark.parametrize("login", ["u:sekrit@", "sekrit@", "u:sek/rit@", "u:s@sekrit@", "u:my sekrit@"])
def test_a_login_in_a_url_is_refused_and_not_repeated(models: Models, login: str) -> None:
    recipe(models, "one", f"https://{login}example.org/one.bin", sha256="")
    text = models.fails("list", "--all").text
    assert "recipes/one/recipe.toml:" in text
    assert "//...@example.org" in text
    assert "sek" not in text
