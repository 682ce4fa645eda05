"""The house rules of CONTRIBUTING.md: which folder may import which, how long a file may be, what a start may cost.

Every import counts: at the top, inside a function, under TYPE_CHECKING, and `import_module("...")` of a literal.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "sparkbuild"

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
LONGEST = 350


@dataclass(frozen=True)
class Import:
    """`name` is imported on `line` of a module; `optional` when the module goes on without it (except ImportError)."""

    name: str
    line: int
    optional: bool = False


def imports(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """What the module `module` imports, by full dotted names; `from a import b` gives `a.b`."""
    tree = ast.parse(source)
    tried = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and _goes_on_without(node)]
    optional = {inner for node in tried for part in node.body for inner in ast.walk(part)}
    return [
        Import(name, node.lineno, node in optional)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        for name in _names(node, module if is_package else module.rpartition(".")[0])
    ]


def _names(node: ast.Import | ast.ImportFrom | ast.Call, package: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=source, names=names, level=level):
            above = package.split(".")
            start = above[: len(above) - level + 1] if level else []
            base = ".".join([*start, *([source] if source else [])])
            return [f"{base}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def _goes_on_without(node: ast.Try) -> bool:
    return any(
        isinstance(name, ast.Name) and name.id in {"ImportError", "ModuleNotFoundError"}
        for handler in node.handlers
        for name in ast.walk(handler.type or ast.Pass())
    )


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


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def dotted(path: Path) -> str:
    """The name a module is imported by."""
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def folder_of(path: Path) -> str:
    """The folder below sparkbuild/ that a module is in; "" for the package's own modules."""
    return path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""


def is_template(path: Path) -> bool:
    """Whether it is a file that `init` writes into a workspace: it follows a workspace's rules, not the package's."""
    return PACKAGE / "workspace" / "template" in path.parents


def test_imports_point_one_way() -> None:
    wrong = [
        f"{shown(path)}:{found.line}: imports {found.name}: {why}"
        for path in modules()
        if not is_template(path)
        for found in imports(path.read_text(), dotted(path), is_package=path.name == "__init__.py")
        if (why := problem(folder_of(path), found))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_row() -> None:
    folders = {folder_of(path) for path in modules()}
    assert folders <= set(MAY_IMPORT), f"no rule for {folders - set(MAY_IMPORT)}"


def test_no_file_is_long() -> None:
    long = {shown(path): count for path in modules() if (count := len(path.read_text().splitlines())) > LONGEST}
    assert not long, f"over {LONGEST} lines: {long}"


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


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b as c", ["a.b"]),
        ("from a import b, c", ["a.b", "a.c"]),
        ("from . import x", ["sparkbuild.nodes.x"]),
        ("from ..core import key", ["sparkbuild.core.key"]),
        ("def f():\n    import late", ["late"]),
        ("if TYPE_CHECKING:\n    from a import T", ["a.T"]),
        ("importlib.import_module('a.b')", ["a.b"]),
    ],
)
def test_every_form_of_import_is_seen(source: str, names: list[str]) -> None:
    assert [found.name for found in imports(source, "sparkbuild.nodes.ask")] == names


def test_relative_imports_of_a_package() -> None:
    assert imports("from . import x", "sparkbuild.nodes", is_package=True) == [Import("sparkbuild.nodes.x", 1)]
