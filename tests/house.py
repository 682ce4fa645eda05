"""The modules of sparkbuild/ and what each of them imports, for the tests that hold the rules of the house.

Every import counts: at the top, inside a function, under TYPE_CHECKING, and `import_module("...")` of a literal.
A table of names from which a module is picked is none: by it, a lower floor is given what it does not know.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "sparkbuild"


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


def is_package(path: Path) -> bool:
    """Whether it is the `__init__.py` of a folder."""
    return path.name == "__init__.py"


def resolved(name: str, known: Mapping[str, Path]) -> str:
    """The module that an imported name is, or is in; "" for one that is not ours."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def imports_of_modules() -> dict[str, set[str]]:
    """Of every module of ours, by its dotted name, the modules of ours that it imports."""
    known = {dotted(path): path for path in modules() if not is_template(path)}
    return {
        module: {
            other
            for found in imports(path.read_text(), module, is_package=is_package(path))
            if (other := resolved(found.name, known)) not in {"", module}
        }
        for module, path in known.items()
    }


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def table(folder: str = "") -> list[tuple[str, str]]:
    """What each package is for; of one `folder` below sparkbuild/, what each of its modules is for."""
    if not folder:
        inits = [path for path in modules() if path.name == "__init__.py" and path.parent != PACKAGE]
        return [(f"{path.parent.relative_to(PACKAGE)}/", first_line(path)) for path in inits]
    return [(path.name, first_line(path)) for path in modules() if path.parent == PACKAGE / folder]


def main(words: list[str]) -> int:
    """`python -m tests.house [FOLDER]`: print that table."""
    rows = table(words[0].strip("/") if words else "")
    if not rows:
        sys.stderr.write(f"sparkbuild/{words[0]} has no modules\n  next:   python -m tests.house names the packages\n")
        return 2
    width = max(len(name) for name, _ in rows)
    sys.stdout.write("".join(f"{name:<{width}}  {line}\n" for name, line in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
