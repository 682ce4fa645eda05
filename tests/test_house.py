"""The house rules of CONTRIBUTING.md: which floor may import which, how much stands in one place, what a start costs.

Which packages of the agent may import which, and that there is no circle, is in test_house_walls.py.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from tests.house import PACKAGE, REPOSITORY, Import, dotted, folder_of, imports, is_package, is_template, modules, shown

BELOW_DOMAINS = {"core", "workspace", "nodes", "upstream"}
DOMAINS = {"images", "staging", "serving", "gates", "bench"}

# What each folder of sparkbuild/ may import of the others.
MAY_IMPORT: dict[str, set[str]] = {
    "agent": set(),
    "core": set(),
    "workspace": {"core"},
    "nodes": {"core"},
    "upstream": {"core", "workspace", "nodes"},
    **dict.fromkeys(DOMAINS, BELOW_DOMAINS),
    "app": BELOW_DOMAINS | DOMAINS,
    "plugin": BELOW_DOMAINS | DOMAINS | {"app"},
    # sparkbuild/__main__.py, the command that needs no workspace
    "": BELOW_DOMAINS | DOMAINS | {"app", "plugin"},
}

# The one package of the agent that the rest may import: what both sides of the wire share.
SHARED = "sparkbuild.agent.wire"

HEAVY = {"docker", "paramiko", "jinja2", "httpx", "rich"}

# core knows no connection and no engine, and fills in templates; workspace reads files and nothing else.
MAY_NOT_IMPORT: dict[str, set[str]] = {
    "core": HEAVY - {"jinja2"},
    "workspace": HEAVY | {"http", "socket", "ssl", "subprocess", "urllib.request"},
}

VAGUE = {"util", "utils", "misc", "helper", "helpers", "common", "stuff"}
LONGEST = 350  # lines of a file
LONGEST_FUNCTION = 60  # lines
FULLEST = 20  # files of a folder, without its __init__.py


def problem(folder: str, found: Import) -> str:
    """Why a module in `folder` may not import this; empty when it may."""
    name = found.name
    top, *rest = name.split(".")
    if top == "doit":
        return "" if folder == "plugin" else "only plugin knows doit"
    if top != "sparkbuild":
        if folder == "agent" and top not in sys.stdlib_module_names and not found.optional:
            return "the agent runs on a bare python3: only the standard library, or a try with except ImportError"
        barred = any(f"{name}.".startswith(f"{other}.") for other in MAY_NOT_IMPORT.get(folder, set()))
        return f"{folder} may not know {top}" if barred else ""
    other = rest[0] if rest else ""
    if other == folder or other not in MAY_IMPORT or other == "":
        return ""  # its own folder; or `from sparkbuild import __version__`
    if other == "agent":
        allowed = f"{name}.".startswith(SHARED + ".")
        return "" if allowed else f"of the agent only {SHARED} is shared"
    return "" if other in MAY_IMPORT[folder] else f"{folder} may import only {sorted(MAY_IMPORT[folder])}"


def test_imports_point_one_way() -> None:
    wrong = [
        f"{shown(path)}:{found.line}: imports {found.name}: {why}"
        for path in modules()
        if not is_template(path)
        for found in imports(path.read_text(), dotted(path), is_package=is_package(path))
        if (why := problem(folder_of(path), found))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_row() -> None:
    folders = {folder_of(path) for path in modules()}
    assert folders <= set(MAY_IMPORT), f"no rule for {folders - set(MAY_IMPORT)}"


def long_files(sources: Mapping[str, str]) -> dict[str, int]:
    """The files, by name, that have too many lines, and how many."""
    return {name: count for name, source in sources.items() if (count := len(source.splitlines())) > LONGEST}


def long_functions(source: str) -> dict[str, int]:
    """The functions with too many lines, and how many; decorators do not count, functions inside do."""
    return {
        node.name: count
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (count := (node.end_lineno or node.lineno) - node.lineno + 1) > LONGEST_FUNCTION
    }


def full_folders(files: Iterable[str]) -> dict[str, int]:
    """The folders with too many files in them, and how many; what Python keeps of modules is no file of ours."""
    folders = Counter(os.path.dirname(name) for name in files if not name.endswith(("/__init__.py", ".pyc")))
    return {folder: count for folder, count in folders.items() if count > FULLEST}


def test_no_file_is_long() -> None:
    long = long_files({shown(path): path.read_text() for path in modules()})
    assert not long, f"over {LONGEST} lines: {long}"


def test_no_function_is_long() -> None:
    long = {shown(path): found for path in modules() if (found := long_functions(path.read_text()))}
    assert not long, f"over {LONGEST_FUNCTION} lines: {long}"


def test_no_folder_is_full() -> None:
    full = full_folders(shown(path) for path in PACKAGE.rglob("*") if path.is_file())
    assert not full, f"over {FULLEST} files: {full}"


def test_every_module_says_what_it_is_for() -> None:
    silent = [shown(path) for path in modules() if not (ast.get_docstring(ast.parse(path.read_text())) or "").strip()]
    assert not silent, f"no docstring: {silent}"


def test_a_module_is_named_for_its_noun() -> None:
    vague = [shown(path) for path in modules() if path.stem.strip("_") in VAGUE or path.parent.name in VAGUE]
    assert not vague, f"names that say nothing: {vague}"


@pytest.mark.skipif(not (PACKAGE / "plugin/tasks.py").exists(), reason="sparkbuild/plugin/tasks.py is not there yet")
def test_creating_tasks_loads_no_heavy_library() -> None:
    """`doit list` and each TAB load this module; docker costs 170 ms, paramiko 110, httpx 70, jinja2 and rich 40."""
    code = "import sys, sparkbuild.plugin.tasks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert HEAVY & set(done.stdout.split()) == set()


@pytest.mark.parametrize(
    ("folder", "name", "allowed"),
    [
        ("plugin", "doit.cmd_base.Command", True),
        ("serving", "doit.tools", False),
        ("plugin", "sparkbuild.serving.lane", True),
        ("serving", "sparkbuild.serving.lane", True),
        ("serving", "sparkbuild.gates.smoke", False),
        ("serving", "sparkbuild.plugin.tasks", False),
        ("serving", "sparkbuild.nodes.local.agent", True),
        ("serving", "sparkbuild.agent.lane.launch", False),
        ("serving", "sparkbuild.agent.wire.records.Ledger", True),
        ("nodes", "sparkbuild.workspace.shapes.schema", False),
        ("workspace", "sparkbuild.nodes.local.agent", False),
        ("workspace", "sparkbuild.core.errors", True),
        ("workspace", "httpx", False),
        ("workspace", "urllib.request.urlopen", False),
        ("workspace", "urllib.parse.urlsplit", True),
        ("core", "sparkbuild.workspace", False),
        ("core", "sparkbuild.__version__", True),
        ("core", "docker", False),
        ("core", "jinja2.Environment", True),
        ("agent", "json", True),
        ("agent", "xxhash", False),
        ("agent", "sparkbuild.core.key", False),
        ("agent", "sparkbuild.agent.disk.files", True),
        ("", "sparkbuild.workspace.init", True),
    ],
)
def test_the_rule_itself(folder: str, name: str, allowed: bool) -> None:
    assert (problem(folder, Import(name, 1)) == "") is allowed


def test_the_agent_may_use_what_it_can_do_without() -> None:
    source = "try:\n    import xxhash\nexcept (ImportError, OSError):\n    import other"
    assert imports(source, "sparkbuild.agent.ledger.digest") == [Import("xxhash", 2, optional=True), Import("other", 4)]
    assert problem("agent", Import("xxhash", 2, optional=True)) == ""
    assert problem("agent", Import("other", 4)) != ""


def test_the_rule_of_long_files_itself() -> None:
    assert long_files({"a.py": "x\n" * 350, "b.py": "x\n" * 351}) == {"b.py": 351}


def test_the_rule_of_long_functions_itself() -> None:
    def function(name: str, lines: int) -> str:
        return f"@decorated\ndef {name}():\n" + "    x\n" * (lines - 1)

    assert long_functions(function("f", 60) + function("g", 61)) == {"g": 61}
    assert long_functions("class A:\n    async def h(self):\n" + "        x\n" * 60) == {"h": 61}


def test_the_rule_of_full_folders_itself() -> None:
    twenty = [f"sparkbuild/a/{number}.py" for number in range(20)]
    more = ["sparkbuild/a/__init__.py", "sparkbuild/a/b/x.py", "sparkbuild/a/x.pyc"]
    assert full_folders(twenty + more) == {}
    assert full_folders([*twenty, *more, "sparkbuild/a/data.toml"]) == {"sparkbuild/a": 21}
