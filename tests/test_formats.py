"""docs/formats.md names every record that the product keeps: file names, formats, labels, marks and fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from sparkbuild.agent.ledger import index, ledger, ownership
from sparkbuild.agent.stage import scrub
from sparkbuild.agent.wire import lanelabels, layout, records
from sparkbuild.agent.wire.receipts import ArchiveReceipt, GateResult, ImageReceipt
from sparkbuild.core.state import Made
from sparkbuild.workspace.recipes import folders
from tests.house import REPOSITORY, modules, shown
from tests.test_docs import section

PAGE = (REPOSITORY / "docs/formats.md").read_text()

# What a text in the code looks like that names a record, a format, a label or a mark.
_RECORDS = (
    r"[\w-]*\.(?:json|jsonl|db|end|evicted|chunks|stamp|part|tmp|lock|link|old|work)",
    r"sparkbuild-[a-z][a-z-]*(?:/v?\d+)?:?",
    r"sparkbuild\.[a-z_]+",
    r"SPARKBUILD_[A-Z_]+",
)

# Names of that look that are no records of ours.
_OTHERS = {
    "sparkbuild.workspace": "a package",
    "result.json": "what a harness writes, in docs/bench.md",
    "index.json": "in archives for `docker load`",
    "source.lock": "a file that `init` writes from",
    "engram-local.json": "the manifest of a sparse copy, made by another tool",
    **dict.fromkeys(
        ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
        "of tokenizers",
    ),
}


def records_in(source: str) -> Iterator[str]:
    """The texts of a module, docstrings left out, that are the name of a record or of a mark."""
    tree = ast.parse(source)
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            text = node.value.lstrip("\0").rpartition("/")[2] if node.value.startswith(("/", "\0")) else node.value
            if any(re.fullmatch(pattern, text.removesuffix("=").removesuffix("-")) for pattern in _RECORDS):
                yield text.removesuffix("=")


def stands_on(page: str, name: str) -> bool:
    """Whether a page names it as a name of its own: `key.json` does not name `y.json`, an ending may follow all."""
    before = "" if name.startswith(".") else r"(?<![\w.])"
    after = "" if name.endswith("-") else r"(?![\w])"
    return re.search(before + re.escape(name) + after, page) is not None


def test_what_names_a_record_is_found():
    source = (
        '"""lane.json"""\nA = "lane.json"\nB = f"{x}/owner.json"\nC = "\\0sparkbuild-pull"\nD = "in lane.json"\n'
        'E = "sparkbuild-lane/v1", "sparkbuild.key", "SPARKBUILD_LANE=", "import sparkbuild"\n'
    )
    found = ["lane.json", "owner.json", "sparkbuild-pull", "sparkbuild-lane/v1", "sparkbuild.key", "SPARKBUILD_LANE"]
    assert sorted(records_in(source)) == sorted(found)
    assert stands_on("`lane.json`, `<name>.part`", "lane.json")
    assert stands_on("`lane.json`, `<name>.part`", ".part")
    assert not stands_on("`airplane.json`", "lane.json")
    assert not stands_on("`sparkbuild.gates`", "sparkbuild.gate")


def test_every_record_that_the_code_names_is_on_the_page():
    named = {name: shown(path) for path in modules() for name in records_in(path.read_text())}
    assert len(named) > 50
    missing = [f"{where}: {name}" for name, where in named.items() if name not in _OTHERS and not stands_on(PAGE, name)]
    assert missing == []
    assert _OTHERS.keys() <= named.keys()


RECORDS = {
    "### `state.db`": Made.__struct_fields__,
    "### `archives/<name>/<12 hex>/`": [*ArchiveReceipt.__annotations__, *GateResult.__annotations__],
    "### `images/<name>/<12 hex>/`": ImageReceipt.__annotations__,
    "### `lanes/<recipe>/`": records.LaneRecord.__annotations__,
    "### `staged-index/`": index.Entry._fields,
    "### `ledger.json`": [
        *(name for name in ledger.Ledger._fields if name != "seal"),  # the seal is of the file, and not in it
        *ledger.Record._fields,
        *ledger.Link._fields,
    ],
    "## Beside staged data": [*ownership.Owner._fields, *scrub.Cursor._fields, *layout.BESIDE],
}


@pytest.mark.parametrize("heading", RECORDS)
def test_every_field_of_a_record_is_on_the_page(heading: str):
    text = section(PAGE, heading)
    missing = [name for name in RECORDS[heading] if not re.search(rf"[`\"{{]{re.escape(name)}[`\"]", text)]
    assert missing == []


def test_every_event_of_the_run_log_is_documented_with_its_fields():
    text = section((REPOSITORY / "docs/state-and-logs.md").read_text(), "## The run log")
    calls = [
        node
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("runlog.write")
    ]
    named = {str(node.args[0].value) for node in calls if isinstance(node.args[0], ast.Constant)}
    named |= {str(keyword.arg) for node in calls for keyword in node.keywords}
    assert {"start", "made", "parts"} <= named
    assert sorted(name for name in named if f"`{name}`" not in text) == []


def rows_of(text: str) -> set[str]:
    """The first cells of a table, as they stand in backquotes."""
    return set(re.findall(r"^\| `([^`]+?)/?` \|", text, re.MULTILINE))


def test_every_folder_of_a_store_is_on_the_page_and_taken():
    text = section(PAGE, "## In a node's store").split("\n### ")[0]
    assert rows_of(text) == {*folders.TAKEN, *folders.DEFAULTS}


def test_every_label_of_a_container_is_on_the_page():
    tree = ast.parse((REPOSITORY / "sparkbuild/serving/launch/container.py").read_text())
    body = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "labels")
    names = [key.value for node in ast.walk(body) if isinstance(node, ast.Dict) for key in node.keys if _is_text(key)]
    assert "recipe" in names
    assert [name for name in names if not stands_on(PAGE, f"sparkbuild.{name}")] == []
    assert stands_on(PAGE, lanelabels.TRIAL)


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def defined(source: str) -> Iterable[str]:
    """What a module defines at its top, and the methods of its classes as `Class.method`."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name, body=body):
                yield name
                yield from (f"{name}.{inner.name}" for inner in body if isinstance(inner, ast.FunctionDef))
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/formats.md"])
def test_every_module_and_name_that_is_named_exists(page: str):
    text = (REPOSITORY / page).read_text()
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)(?::\s([\w.]+))?`", text)
    assert len(named) > 10
    for module, name in named:
        path = REPOSITORY / module if (REPOSITORY / module).exists() else REPOSITORY / "sparkbuild" / module
        assert path.exists(), module
        assert not name or name in defined(path.read_text()), (module, name)
