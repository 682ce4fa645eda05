"""Staging from a URL that a recipe pins itself: what is wanted is its name and its content, not where it lies."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.cutting_server import CuttingServer, serving
from tests.plugin.models import Models
from tests.workspace_tool import finish, until

DATA = b"some weights" * 100_000
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


# --- one content, several URLs ---------------------------------------------------------------------------------------


def refusing() -> str:
    """A URL of a host where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/data.bin"


def bad_urls(server: CuttingServer) -> dict[str, tuple[str, str]]:
    """By kind: a URL that does not give the content, and what is said of it."""
    server.files["other.bin"] = b"another file"
    other = hashlib.sha256(b"another file").hexdigest()
    return {
        "gone": (f"{server.url}/files/gone.bin", "the server says HTTP 404"),
        "refused": (refusing(), "Connection refused"),
        "no such host": ("http://no-such-host.invalid/data.bin", "download failed, "),
        "other content": (f"{server.url}/files/other.bin", f"other content, sha256 {other}"),
    }


@pytest.mark.parametrize("kind", ["gone", "refused", "no such host", "other content"])
@pytest.mark.parametrize("task", ["stage:aa", "stage:bb"])
def test_a_url_that_fails_is_followed_by_those_of_other_recipes(
    models: Models, server: CuttingServer, kind: str, task: str
) -> None:
    url, said = bad_urls(server)[kind]
    recipe(models, "aa", url)
    recipe(models, "bb", f"{server.url}/files/two.bin")
    models.ok(task)
    name = task.removeprefix("stage:")
    assert staged(models, name) == {url.rpartition("/")[2] if name == "aa" else "two.bin": DATA}
    log = "".join(path.read_text() for path in (models.root / ".sparkbuild/runs").rglob("*.log"))
    line = next(line for line in log.splitlines() if f"{url} (recipes/aa/recipe.toml): " in line)
    assert said in line
    assert f"now from another URL of the same sha256: {server.url}/files/two.bin" in log


def test_when_all_urls_fail_each_is_named_with_its_reason_and_its_place(models: Models, server: CuttingServer) -> None:
    urls = bad_urls(server)
    for name, kind in (("aa", "other content"), ("bb", "gone"), ("cc", "refused")):
        recipe(models, name, urls[kind][0])
    recipe(models, "dd", urls["gone"][0])  # once more: it is asked once
    out = models.fails("stage:cc").out
    assert "none of the 3 URLs of this file gives it" in out
    for name, kind in (("aa", "other content"), ("bb and recipes/dd", "gone"), ("cc", "refused")):
        places = f"recipes/{name}/recipe.toml".replace("bb and", "bb/recipe.toml and")
        line = next(line for line in out.splitlines() if f"{urls[kind][0]} ({places}): " in line)
        assert urls[kind][1] in line
    assert f"wanted: sha256 {SHA} from one of them" in out
    assert [path for path in (models.store / "artifacts").rglob("file*") if path.is_file()] == []


def test_urls_more_or_less_are_the_same_goal(models: Models, server: CuttingServer) -> None:
    artifact = f"artifact:url:{SHA[:12]}"
    recipe(models, "aa", f"{server.url}/files/one.bin")
    assert f"from {server.url}/files/one.bin\n" in models.ok("plan", artifact).out
    recipe(models, "bb", f"{server.url}/files/two.bin")
    assert f"from {server.url}/files/one.bin, or 1 other\n" in models.ok("plan", artifact).out
    recipe(models, "cc", f"{server.url}/files/three.bin")
    assert f"from {server.url}/files/one.bin, or 2 others\n" in models.ok("plan", artifact).out
    models.ok("stage:aa")
    models.drop("aa")
    assert "nothing to do" in models.ok("plan", artifact).out
    models.ok("stage:bb")
    assert len(server.asked) == 1, "the content was there"


def test_a_download_goes_on_from_another_url(models: Models, server: CuttingServer) -> None:
    recipe(models, "aa", f"{server.url}/files/one.bin")
    recipe(models, "bb", f"{server.url}/files/two.bin")
    server.cuts = [5000]
    models.ok("stage:bb")
    assert server.asked == ["", "bytes=5000-"]
    assert staged(models, "bb") == {"two.bin": DATA}


def test_what_another_url_began_wrongly_is_begun_anew(models: Models, server: CuttingServer) -> None:
    server.files["wrong.bin"] = b"x" * 9000
    recipe(models, "aa", f"{server.url}/files/wrong.bin")
    recipe(models, "bb", f"{server.url}/files/two.bin")
    server.cuts = [5000]
    models.ok("stage:bb")
    assert server.asked == ["", "bytes=5000-", ""], "once more from the beginning"
    assert staged(models, "bb") == {"two.bin": DATA}


def test_a_killed_download_is_resumed_from_the_url_that_is_left(models: Models, server: CuttingServer) -> None:
    recipe(models, "aa", f"{server.url}/files/one.bin")
    server.hold = threading.Event()
    process = models.start("stage:aa")
    part = until(lambda: next((path for path in models.store.rglob("file.part") if path.stat().st_size), None))
    process.kill()
    finish(process, 30)
    server.hold.set()
    server.hold = None
    size = part.stat().st_size
    del server.files["one.bin"]
    recipe(models, "bb", f"{server.url}/files/two.bin")
    models.ok("stage:aa")
    assert server.asked == ["", f"bytes={size}-"]
    assert staged(models, "aa") == {"one.bin": DATA}


def test_a_login_in_the_url_of_another_recipe_is_never_tried(models: Models, server: CuttingServer) -> None:
    recipe(models, "aa", server.url.replace("//", "//u:sekrit@") + "/files/one.bin")
    recipe(models, "bb", f"{server.url}/files/gone.bin")
    done = models.fails("stage:bb")
    assert "the server says HTTP 404" in done.out
    assert "none of" not in done.out
    assert server.asked == []
    assert "sekrit" not in done.text
