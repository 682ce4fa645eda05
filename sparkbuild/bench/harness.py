"""The surroundings of a harness: a home of its own, nothing from the network, a text and a tokenizer at hand."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from sparkbuild.agent.wire.lanes import TOKENIZER, TokenizerAsk
from sparkbuild.bench.target import BenchTarget
from sparkbuild.core import child
from sparkbuild.core.errors import ChildError, ConfigError, SparkbuildError
from sparkbuild.core.run import Event, Run, call

PROGRAMS = ("tool-eval-bench", "llama-benchy")

# llama-benchy cuts its prompts out of a book that it would download, unless its cache has one for the URL. This is no
# URL that anything could be downloaded from, so a book that is not found there can only be an error.
BOOK_URL = "book:pydoc_data.topics"

_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))
"""


def environment(scratch: Path) -> dict[str, str]:
    """Variables for a harness, made from nothing: no proxies, tokens or settings of the operator's shell get in.

    The home folder is inside `scratch`; the Hugging Face libraries are told to stay offline.
    """
    home = scratch / "home"
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "TMPDIR": str(scratch / "tmp"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "NO_PROXY": "*",
        "PYTHONUNBUFFERED": "1",
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def prepare(scratch: Path, text: str) -> Path:
    """Make the folders, put the book where llama-benchy looks, and return the folder to run a harness in.

    tool-eval-bench writes ./data there whatever it is told, and reads the nearest .env upwards: the empty one stops it
    from finding an operator's.
    """
    work = scratch / "work"
    book = (
        scratch
        / "home/.cache/llama-benchy"
        / f"{hashlib.md5(BOOK_URL.encode(), usedforsecurity=False).hexdigest()}.txt"
    )
    for folder in (work, scratch / "tmp", book.parent):
        folder.mkdir(parents=True, exist_ok=True)
    book.write_text(text, encoding="utf-8")
    (work / ".env").touch()
    return work


def english() -> str:
    """Half a megabyte of English that ships with every Python: the texts of `help()`."""
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - half a megabyte
    except ImportError as error:
        raise SparkbuildError(
            "this Python lacks the text that prompts are cut from", wanted="the standard module pydoc_data.topics"
        ) from error
    return "\n\n".join(topics[name] for name in sorted(topics))


def versions(python: str, log: Path) -> dict[str, str]:
    """Installed versions of the programs, from the metadata in the harness image; "" for one that is not there."""
    found: dict[str, str] = {}

    def on_line(line: str) -> None:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            found.update(msgspec.json.decode(line, type=dict[str, str]))

    child.run([python, "-I", "-c", _VERSIONS, *PROGRAMS], log=log, env={}, on_line=on_line)
    return {name: found.get(name, "") for name in PROGRAMS}


def fetched(source: str, target: BenchTarget, scratch: Path, run: Run) -> str:
    """The tokenizer on this machine: `source` itself, or a copy from the node that the lane is on. Raises ConfigError
    when there is none.
    """
    if not target.node:
        return source
    folder = scratch / "tokenizer-of-node"
    folder.mkdir()

    def take(event: Event) -> None:
        if event.get("event") == "piece":
            with (folder / Path(str(event["name"])).name).open("ab") as file:
                file.write(base64.b64decode(event["data"]))

    names = call(run.agent(target.node), TOKENIZER, TokenizerAsk(path=source), take)["names"]
    return str(folder if len(names) > 1 else folder / names[0])


def tokenizer(source: str, target: BenchTarget, scratch: Path, log: Path, where: str) -> Path:
    """The folder or file to give to llama-benchy for a tokenizer.json, its folder, or a GGUF file it is made from.

    Raises ConfigError when the file is missing or is none of these, ChildError when it cannot be made.
    """
    path = Path(source)
    if path.is_dir() and (path / "tokenizer.json").is_file():
        return path
    if not path.is_file():
        what = "a folder without tokenizer.json" if path.is_dir() else "no such file"
        raise ConfigError("the tokenizer for the throughput bench is missing", where=where, found=f"{source}: {what}")
    if path.suffix == ".json":
        return path
    if path.suffix != ".gguf":
        raise ConfigError(
            "the tokenizer for the throughput bench is of no known kind",
            where=where,
            found=source,
            wanted="a tokenizer.json, a folder with one, or a GGUF file",
        )
    made = scratch / "tokenizer" / "tokenizer.json"
    script = os.path.join(target.files, "gguf_tokenizer.py")
    child.run([target.python, "-I", script, str(path), str(made)], log=log, env=environment(scratch))
    if not made.is_file():
        raise ChildError("no tokenizer.json was made", where=str(log))
    return made.parent
