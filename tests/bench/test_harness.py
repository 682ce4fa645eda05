from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sparkbuild.bench import harness
from sparkbuild.bench.target import BenchTarget, fill
from sparkbuild.core.errors import ChildError, ConfigError

TARGET = BenchTarget("http://h:1", "m", "/py", "/files", {"weights": "/store/w"})


def test_the_environment_is_made_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "HF_TOKEN", "TOOL_EVAL_MODEL", "PYTHONPATH", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "leak")
    made = harness.environment(tmp_path)
    assert "leak" not in made.values()
    assert made["HOME"].startswith(str(tmp_path))
    assert made["HF_HUB_OFFLINE"] == "1"


def test_the_book_lies_where_it_is_looked_for(tmp_path: Path):
    work = harness.prepare(tmp_path, "A text.")
    name = hashlib.md5(harness.BOOK_URL.encode()).hexdigest() + ".txt"
    home = Path(harness.environment(tmp_path)["HOME"])
    assert (home / ".cache/llama-benchy" / name).read_text() == "A text."
    assert (work / ".env").read_text() == ""


def test_the_text_is_english_and_the_same_each_time():
    text = harness.english()
    assert len(text) > 100_000
    assert " the " in text
    assert text == harness.english()


@pytest.mark.parametrize(
    ("template", "path"),
    [("/a/tokenizer.json", "/a/tokenizer.json"), ("{{ staged.weights }}/{{ model_id }}.gguf", "/store/w/m.gguf")],
)
def test_templates(template: str, path: str):
    assert fill(template, TARGET, "w") == path


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{{ staged.wieghts }}", "staged.weights"),
        ("{{ nothing }}", "staged.weights"),
        ("{{ staged", "an expression, as in {{ port }}"),
    ],
)
def test_templates_are_strict(template: str, wanted: str):
    with pytest.raises(ConfigError) as caught:
        fill(template, TARGET, "recipes/demo/recipe.toml")
    assert caught.value.where == "recipes/demo/recipe.toml"
    assert wanted in caught.value.wanted


def test_a_tokenizer_that_is_there_is_used_as_it_is(tmp_path: Path):
    (tmp_path / "tokenizer.json").touch()
    for source in (tmp_path, tmp_path / "tokenizer.json"):
        assert harness.tokenizer(str(source), TARGET, tmp_path, tmp_path / "log", "w") == source


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing.gguf", "no such file"), ("folder", "a folder without tokenizer.json"), ("model.bin", "model.bin")],
)
def test_a_tokenizer_that_is_none(tmp_path: Path, name: str, message: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.bin").touch()
    with pytest.raises(ConfigError) as caught:
        harness.tokenizer(str(tmp_path / name), TARGET, tmp_path, tmp_path / "log", "recipe.toml")
    assert message in caught.value.found


def test_a_broken_gguf(tmp_path: Path, harness_python: Path):
    target = BenchTarget("http://h:1", "m", str(harness_python), str(Path("images/harness").resolve()))
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 8)
    with pytest.raises(ChildError) as caught:
        harness.tokenizer(str(tmp_path / "x.gguf"), target, tmp_path, tmp_path / "log", "w")
    assert "gguf_tokenizer.py: error: cannot read" in caught.value.found


def test_versions_come_from_the_harness_image(tmp_path: Path, harness_python: Path):
    found = harness.versions(str(harness_python), tmp_path / "log")
    assert found == {"tool-eval-bench": "3.0.0", "llama-benchy": "0.4.0"}
