from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli

from sparkbuild.workspace.locks import sourcelock
from sparkbuild.workspace.shapes.schema import ImageFile, RecipeFile
from tests.engine import MODEL_ID, ROOT, SERVE, Engine, free_port, start_engine

IMAGES = ("llamacpp", "harness", "demo-ranks")
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Add", "parameters": {"type": "object", "properties": {}}},
}


def post(url: str, body: dict[str, Any], timeout: float = 60) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)


# --- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "harness", "demo-ranks"])
def test_the_locks_agree_with_the_files(name: str):
    lock = sourcelock.read(ROOT / f"locks/{name}.source.lock", ROOT)
    assert sourcelock.verify(lock, ROOT) == ()
    assert lock.inputs()


@pytest.mark.parametrize("name", IMAGES)
def test_the_images(name: str):
    folder = ROOT / "images" / name
    image = msgspec.convert(tomli.loads((folder / "image.toml").read_text()), ImageFile)
    assert (folder / image.requirements).is_file()
    assert all((folder / file).is_file() for file in image.files)
    lock = sourcelock.read(ROOT / f"locks/{image.lock}.source.lock", ROOT)
    assert f"images/{name}/{image.requirements}" in lock.inputs()


@pytest.mark.parametrize("name", IMAGES)
def test_the_requirements_name_no_host_and_every_one_has_hashes(name: str):
    folder = ROOT / "images" / name
    text = (folder / "requirements.lock").read_text()
    assert not re.search(r"https?:|index-url|find-links|trusted-host", text + (folder / "requirements.in").read_text())
    pins = re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)(?:[^\n]*\\\n)((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
    )
    assert len(pins) == len(re.findall(r"^\S+==", text, re.MULTILINE)) > 0
    assert "torch" not in {pin[0] for pin in pins}
    for line in (folder / "requirements.in").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            assert tuple(line.split("==")) in {(pin[0], pin[1]) for pin in pins}


def test_the_lock_says_the_versions_that_are_installed():
    harness = sourcelock.read(ROOT / "locks/harness.source.lock", ROOT).values
    text = (ROOT / "images/harness/requirements.lock").read_text()
    for name in ("tool-eval-bench", "llama-benchy", "gguf"):
        assert f"\n{name}=={harness[f'{name}.version']} " in text
    demo = sourcelock.read(ROOT / "locks/demo.source.lock", ROOT).values
    ranks = sourcelock.read(ROOT / "locks/demo-ranks.source.lock", ROOT).values
    assert ranks["xllamacpp.version"] == demo["xllamacpp.version"]
    for image in ("llamacpp", "demo-ranks"):
        assert f"xllamacpp=={demo['xllamacpp.version']} " in (ROOT / f"images/{image}/requirements.lock").read_text()


def test_the_packages_are_those_of_the_main_archive():
    lock = sourcelock.read(ROOT / "locks/demo-ranks.source.lock", ROOT)
    image = msgspec.convert(tomli.loads((ROOT / "images/demo-ranks/image.toml").read_text()), ImageFile)
    assert set(image.debs) == set(lock.artifacts())
    for name in image.debs:
        assert lock.artifact(name).url.startswith("http://deb.debian.org/debian/pool/main/")


def test_the_recipe():
    recipe = msgspec.convert(tomli.loads((ROOT / "recipes/demo/recipe.toml").read_text()), RecipeFile)
    assert recipe.image in IMAGES
    assert recipe.bench is not None
    assert recipe.bench.image in IMAGES
    (block,) = recipe.staging
    lock, _, component = block.src.removeprefix("artifact:").partition("/")
    assert component in sourcelock.read(ROOT / f"locks/{lock}.source.lock", ROOT).artifacts()
    assert recipe.model_id == MODEL_ID


# --- serve.py --------------------------------------------------------------------------------------------------------


def serve(python: Path | str, *arguments: object) -> tuple[int, str]:
    """Exit code of a server that should not start, and its own last line: the engine's may come in between."""
    argv = [str(python), str(SERVE), "--alias", "m", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return done.returncode, [line for line in lines if line.startswith("serve.py: ")][-1]


def test_a_model_that_is_missing(tmp_path: Path):
    code, line = serve(sys.executable, "--model", tmp_path / "x.gguf", "--port", free_port())
    assert code == 2
    assert line == f"serve.py: error: cannot read the model {tmp_path}/x.gguf: No such file or directory"


def test_a_model_that_is_none(tmp_path: Path):
    (tmp_path / "x.gguf").write_text("<html>")
    code, line = serve(sys.executable, "--model", tmp_path / "x.gguf", "--port", free_port())
    assert code == 2
    assert line == f"serve.py: error: {tmp_path}/x.gguf is not a GGUF file: it starts with b'<htm'"


def test_a_model_that_is_cut_off(tmp_path: Path, engine_python: Path, model_file: Path):
    with model_file.open("rb") as whole:
        (tmp_path / "x.gguf").write_bytes(whole.read(1_000_000))
    code, line = serve(engine_python, "--model", tmp_path / "x.gguf", "--port", free_port())
    assert code == 4
    assert line.startswith(f"serve.py: error: the engine did not start with {tmp_path}/x.gguf on ")


def test_a_port_in_use(model_file: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, line = serve(sys.executable, "--model", model_file, "--port", port)
    assert code == 3
    assert line == f"serve.py: error: cannot listen on 127.0.0.1 port {port}: Address already in use"


def test_a_host_that_is_not_ours(model_file: Path):
    code, line = serve(sys.executable, "--model", model_file, "--port", free_port(), "--host", "192.0.2.1")
    assert code == 3
    assert "cannot listen on 192.0.2.1" in line


def test_a_template_that_is_missing(model_file: Path, tmp_path: Path):
    arguments = ("--model", model_file, "--port", free_port(), "--chat-template", tmp_path / "t.jinja")
    code, line = serve(sys.executable, *arguments)
    assert code == 2
    assert line.startswith(f"serve.py: error: cannot read the chat template {tmp_path}/t.jinja")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_and_fast(engine_python: Path, model_file: Path, tmp_path: Path, number: int):
    engine = start_engine(engine_python, model_file, tmp_path / "log")
    began = time.monotonic()
    assert engine.stop(number) == 0
    assert time.monotonic() - began < 5
    text = engine.log.read_text(errors="replace")
    assert f"serve.py: serving {MODEL_ID} at {engine.base_url}" in text
    assert f"serve.py: {signal.Signals(number).name}: stopping" in text
    # The port is free at once for the next one.
    again = start_engine(engine_python, model_file, tmp_path / "log2", port=int(engine.base_url.rpartition(":")[2]))
    assert again.stop() == 0


def test_it_does_not_wait_for_a_long_answer(engine_python: Path, model_file: Path, tmp_path: Path):
    engine = start_engine(engine_python, model_file, tmp_path / "log")
    body = {"messages": [{"role": "user", "content": "Tell me a long story."}], "max_tokens": 4000, "ignore_eos": True}

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            post(f"{engine.base_url}/v1/chat/completions", body)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(1.5)
    began = time.monotonic()
    assert engine.stop() == 0
    assert time.monotonic() - began < 8
    thread.join(10)
    assert not thread.is_alive()


def test_metrics(engine: Engine):
    with urllib.request.urlopen(f"{engine.base_url}/metrics", timeout=10) as response:
        assert b"llamacpp:prompt_tokens_total" in response.read()


# --- the chat template -----------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "Hi!  \n"}
CONVERSATIONS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "2+2?"}],
    [{"role": "system", "content": ""}, USER],
    [{"role": "system", "content": "A"}, USER, {"role": "system", "content": "B"}, USER],
]


def test_without_tools_it_is_the_models_own_template(
    engine: Engine, engine_python: Path, model_file: Path, tmp_path: Path
):
    native = start_engine(engine_python, model_file, tmp_path / "log", template=None)
    try:
        for messages in CONVERSATIONS:
            prompts = [
                post(f"{url}/apply-template", {"messages": messages}) for url in (native.base_url, engine.base_url)
            ]
            assert prompts[0]["prompt"] == prompts[1]["prompt"]
    finally:
        native.stop()


def test_with_tools_they_are_in_the_prompt(engine: Engine):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "3"},
    ]
    prompt = post(f"{engine.base_url}/apply-template", {"messages": messages, "tools": [TOOL]})["prompt"]
    assert '"name": "add"' in prompt
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>' in prompt
    assert "<tool_response>\n3\n</tool_response>" in prompt
    assert prompt.endswith("<|im_start|>assistant\n")


# --- the tokenizer ---------------------------------------------------------------------------------------------------

TEXTS = [
    "Hello world",
    "  two  spaces\n\n\nlines\t\ttab ",
    "1234567 12.5 v2 007",
    "it's we'll DON'T",
    "Грегор Замза проснулся",
    "日本語のテキスト 😀👍🏽 e\u0301",
    "<|im_start|>user\nhi<|im_end|>\n",
    "a" * 300,
    "def f(x):\r\n    return x ** 2  # ok\n",
    "",
]
ENCODE = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
texts = json.load(sys.stdin)
ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
print(json.dumps([[a, tokenizer.decode(a, skip_special_tokens=False)] for a in ids]))
"""


def make_tokenizer(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    script = ROOT / "images/harness/gguf_tokenizer.py"
    argv = [str(python), "-I", str(script), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_tokenizer_is_the_engines(engine: Engine, harness_python: Path, model_file: Path, tmp_path: Path):
    made = tmp_path / "new/tokenizer.json"
    assert make_tokenizer(harness_python, model_file, made).returncode == 0
    texts = [*TEXTS, (ROOT / "locks/demo.source.lock").read_text(), SERVE.read_text()]
    argv = [str(harness_python), "-I", "-c", ENCODE, str(made)]
    done = subprocess.run(argv, input=json.dumps(texts), capture_output=True, text=True, check=True)
    for text, (ids, decoded) in zip(texts, json.loads(done.stdout), strict=True):
        body = {"content": text, "add_special": False, "parse_special": True}
        assert post(f"{engine.base_url}/tokenize", body)["tokens"] == ids, text[:60]
        assert decoded == text


@pytest.mark.parametrize("content", [None, b"", b"<html>", b"GGUF", b"GGUF" + b"\x03\0\0\0" + b"\0" * 16])
def test_no_tokenizer_from_what_is_no_model(harness_python: Path, tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "x.gguf").write_bytes(content)
    done = make_tokenizer(harness_python, tmp_path / "x.gguf", tmp_path / "out.json")
    assert done.returncode == 2
    assert re.fullmatch(r"gguf_tokenizer.py: error: [^\n]+\n", done.stderr)
    assert not (tmp_path / "out.json").exists()
