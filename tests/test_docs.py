"""The documentation is true where a program can tell: keys, defaults, examples, commands, paths and links exist."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import tomli

from sparkbuild.workspace.locks import sourcelock
from sparkbuild.workspace.shapes import schema, stagingschema
from tests import house
from tests.workspace_tool import Tool

ROOT = Path(__file__).parents[1]
DOCS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

# The heading in docs/workspace.md under which the keys of each table stand.
TABLES: dict[str, type[msgspec.Struct]] = {
    "### `[nodes.<name>]`": schema.Node,
    "### `[clusters.<name>]`": schema.Cluster,
    "### `[images]`": schema.Images,
    "### Kind `venv`": schema.VenvImage,
    "### Kind `docker`": schema.DockerImage,
    "### Kind `dockerfile`": schema.DockerfileImage,
    "### `[[gates]]` of an image": schema.ImageGate,
    "### Top level": schema.RecipeFile,
    "### `[serve]`": schema.Serve,
    "### `[serve.docker]`": schema.Docker,
    "### `[[serve.mounts]]`": schema.Mount,
    "### `[[staging]]`, kind `files`": stagingschema.FilesStaging,
    "### `[[staging]]`, kind `hub-mirror`": stagingschema.HubStaging,
    "### `[[staging]]`, kind `sparse-rows`": stagingschema.RowsStaging,
    "### `[[staging.exports]]`, kind `tree`": stagingschema.TreeExport,
    "### `[[staging.exports]]`, kind `composed`": stagingschema.ComposedExport,
    "### `[[gates]]`, kind `smoke`": schema.SmokeGate,
    "### `[[gates]]`, kind `tool`": schema.ToolGate,
    "### `[bench]`": schema.Bench,
    "### `[bench.tool_eval]`": schema.ToolEval,
    "### `[bench.throughput]`": schema.Throughput,
}
TAG = "kind"  # of a gate: no field of its struct, but a key of its table

# Which shape an example has, by the key it begins with.
SHAPES: dict[str, Any] = {
    "nodes": schema.Config,
    "kind": schema.ImageFile,
    "description": schema.RecipeFile,
    "cluster": schema.RecipeFile,
}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def section(text: str, heading: str) -> str:
    level = heading.split(" ", 1)[0]
    after = text.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"\n#{{1,{len(level)}}} ", after, maxsplit=1)[0]


def rows(text: str) -> dict[str, str]:
    """The rows of the tables in a text, the second cell by the first."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3:
            found[cells[0]] = cells[1]
    return found


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def code(text: str) -> Iterator[str]:
    """What is written as code: in backquotes, and in indented or fenced lines."""
    for block in fenced(text, r"\w*"):
        yield from block.splitlines()
    outside = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for line in outside.splitlines():
        if line.startswith("    "):
            yield line.strip()
        else:
            yield from re.findall(r"`([^`]+)`", line)


def written(value: Any) -> str:
    """A default as TOML has it."""
    if value is None or (isinstance(value, tuple) and not value):
        return "`[]`|none"
    if isinstance(value, msgspec.Struct):
        return "all its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{msgspec.json.encode(value).decode().replace(',', ', ')}`"
    return f"`{msgspec.json.encode(value).decode()}`"


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else msgspec.NODEFAULT


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_documented_with_its_default(heading: str):
    found = rows(section((ROOT / "docs/workspace.md").read_text(), heading))
    fields = {field.encode_name: field for field in msgspec.structs.fields(TABLES[heading])}
    documented = {key.strip("`") for key in found if key.startswith("`")}
    assert documented - {TAG} == fields.keys() - {TAG}
    for name, field in fields.items():
        cell, default = found[f"`{name}`"], default_of(field)
        if default is msgspec.NODEFAULT:
            assert "required" in cell, name
        else:
            wanted = written(default).split("|")
            assert any(f"default {text}" in cell for text in wanted), (name, cell, wanted)


def test_every_choice_is_documented():
    for heading, shape in TABLES.items():
        found = rows(section((ROOT / "docs/workspace.md").read_text(), heading))
        for field in msgspec.structs.fields(shape):
            for choice in get_args(field.type):
                if isinstance(choice, str) and field.encode_name in {"kind", "connection", "runtime", "preset"}:
                    assert f'"{choice}"' in found[f"`{field.encode_name}`"], (heading, field.encode_name)


def test_every_field_of_the_manifest_is_documented():
    from sparkbuild.bench.manifest import Cell, Manifest, Pool, Scores, Speed  # noqa: PLC0415

    text = (ROOT / "docs/bench.md").read_text()
    for shape in (Manifest, Scores, Pool, Speed, Cell):
        missing = [name for name in shape.__struct_fields__ if f"`{name}`" not in text]
        assert not missing, (shape.__name__, missing)


def examples(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{shown(path)}-{number}")
        for path in DOCS
        for number, block in enumerate(fenced(path.read_text(), language))
    ]


@pytest.mark.parametrize("block", examples("toml"))
def test_examples_of_toml_fit_the_schema(block: str):
    data = tomli.loads(block)
    first = next(iter(data))
    if first in SHAPES:
        msgspec.convert(data, SHAPES[first])
    else:  # a part of a recipe
        for key, value in data.items():
            field = next(field for field in msgspec.structs.fields(schema.RecipeFile) if field.encode_name == key)
            msgspec.convert(value, field.type)


@pytest.mark.parametrize("block", examples("lock"))
def test_examples_of_locks_can_be_read(block: str):
    lock = sourcelock.parse(block, "example", "example.source.lock")
    assert lock.artifacts()
    assert lock.check() == []


def test_the_status_as_json_has_the_documented_fields():
    from sparkbuild.plugin.commands import status  # noqa: PLC0415

    block = next(param.values[0] for param in examples("json") if '"lanes"' in str(param.values[0]))
    made = status.Row._fields
    assert list(msgspec.json.decode(block)["lanes"][0]) == [name for name in made if name not in status.FOR_PEOPLE]


@pytest.mark.parametrize("block", [one for one in examples("json") if '"goals"' in str(one.values[0])])
def test_the_plan_as_json_has_the_documented_fields(block: str):
    from sparkbuild.core.goal import Goal, Uri  # noqa: PLC0415
    from sparkbuild.core.key import Key  # noqa: PLC0415
    from sparkbuild.core.plan import Step, Verdict  # noqa: PLC0415
    from sparkbuild.core.reasons import changed  # noqa: PLC0415

    goal = Goal("serve:demo", Uri("lane", "local", "demo"), Key({}), "")
    reasons = (changed("command", ["--ctx", "8192"], ["--ctx", "4096"]),)
    step = Step(goal, "run", reasons, 0, Verdict("run"))
    assert msgspec.json.decode(block) == {"goals": [step.as_dict("doit serve:demo")]}


COMMANDS = {
    "completion",
    "forget",
    "health",
    "help",
    "ignore",
    "list",
    "logs",
    "outdated",
    "plan",
    "run",
    "status",
    "trust",
    "verify",
    "why",
}
WITHHELD = {"clean", "dumpdb", "info", "reset-dep", "strace", "tabcompletion"}  # of doit's own commands
TASKS = {"artifact", "bench", "image", "lock", "prune", "repro", "serve", "source", "stage", "stop", "sync", "test"}


def test_the_commands_are_those_of_the_package():
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = set(project["entry-points"]["doit.COMMAND"])
    assert commands - WITHHELD <= COMMANDS
    overview = section((ROOT / "docs/commands.md").read_text(), "## Overview")
    for name in commands - WITHHELD - {"run", "forget", "help", "ignore"}:
        assert f"| `doit {name}" in overview
    names = section((ROOT / "docs/commands.md").read_text(), "## Tasks")
    assert [name for name in sorted(TASKS) if f"| `{name}" not in names] == []
    assert section((ROOT / "README.md").read_text(), "## Five commands").count("\n| `doit ") == 5


@pytest.mark.parametrize("words", [["list"], ["list", "stage"]], ids=" ".join)
def test_what_list_is_shown_to_print_is_what_it_prints(tmp_path: Path, words: list[str]) -> None:
    text = section((ROOT / "docs/commands.md").read_text(), "## `doit list`")
    sample = text.split(f"    $ doit {' '.join(words)}\n", 1)[1].split("\n\n", 1)[0].splitlines()
    for name in ("images/harness", "images/llamacpp", "recipes/demo"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "locks").mkdir()
    for name in ("locks/demo.source.lock", "locks/harness.source.lock", "dodo.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    printed = Tool(tmp_path).ok(*words).out.splitlines()
    assert [line.removeprefix("    ") for line in sample] == [line.rstrip() for line in printed]


@pytest.mark.parametrize("path", DOCS, ids=shown)
def test_commands_that_are_named_exist(path: Path):
    for text in code(path.read_text()):
        for called in re.findall(r"(?:^|[\s(\"])(?:\./doitw|doit) ([^\s\"`]+)", text):
            name = called.strip("'()[],;\"")
            if name.startswith("-") or name.isupper() or not name.strip("."):
                continue
            assert name in COMMANDS | TASKS or name.partition(":")[0] in TASKS | {"health", "verify"}, (text, name)


@pytest.mark.parametrize("path", DOCS, ids=shown)
def test_paths_that_are_named_exist(path: Path):
    for text in code(path.read_text()):
        for name in re.findall(r"(?<![\w/.<>-])(?:sparkbuild|docs|tests|benchmarks|\.ci)/(?![\w-]+:)[\w./-]*\w", text):
            assert (ROOT / name).exists(), (text, name)


@pytest.mark.parametrize("path", DOCS, ids=shown)
def test_links_lead_somewhere(path: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file) if file else path
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, (target, sorted(anchors))


def test_the_first_change_fits_the_files_that_it_changes():
    blocks = fenced((ROOT / "CONTRIBUTING.md").read_text(), "diff")
    changes = [part for block in blocks for part in re.split(r"^--- ", block, flags=re.MULTILINE)[1:]]
    assert len(changes) == 5
    for change in changes:
        path, *lines = change.splitlines()
        there = (ROOT / path).read_text().splitlines()
        assert [line for line in lines if not line.startswith("+") and line[1:] not in there] == [], path


def test_every_package_and_module_says_what_it_is_for():
    folders = [name for name, _ in house.table()]
    assert "agent/ledger/" in folders
    rows = [(f"{folder}{name}", line) for folder in folders for name, line in house.table(folder)]
    assert [name for name, line in [*house.table(), *rows] if not line] == []
    assert len(rows) + len(house.table(".")) == len(house.modules())
