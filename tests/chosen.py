"""`python -m tests.chosen [--changed] ...`: pytest as `./doitw test` runs it; all else goes to pytest as it is.

`--changed` leaves the files of tests that a change can reach: what differs from where the branch left `main`, and what
is not committed. A test reaches what it imports and what that imports, all of the package whose folder it mirrors, and,
where it runs doit, the whole plugin; a conftest is reached by all below it. `BESIDE` has those of no module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests import house, layers

ROOT = house.REPOSITORY
DOIT = {"tests.workspace_tool.Tool", "tests.workspace_tool.bare"}  # run doit, which they do not import
BESIDE = {
    "doitw": "tests/doitw",
    "images/": "tests/images",
    "recipes/": "tests/images",
    "locks/": "tests/images",
    "benchmarks/": "tests/test_benchmarks.py",
    ".ci/": "tests/test_ci.py",
}
ALWAYS = "tests/test_[!bp]*.py"  # they read the tree itself, and its documents


def changed(root: Path = ROOT) -> list[str]:
    """The files that a change touches, from `root`: since the branch left main, and not committed, or not yet added."""
    base = _git(root, "merge-base", "main", "HEAD") or ["HEAD"]
    return sorted(
        {*_git(root, "diff", "--name-only", base[0]), *_git(root, "ls-files", "--others", "--exclude-standard")}
    )


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1]


def imports() -> dict[str, set[str]]:
    """Of every module of sparkbuild and of its tests, the modules that it reaches in one step."""
    known = house.imports_of_modules()
    paths = {house.dotted(path): path for path in (ROOT / "tests").rglob("*.py")}
    every = dict.fromkeys((*known, *paths), ROOT)
    run = {name for name in known if name.startswith("sparkbuild.plugin.")}
    for name, path in paths.items():
        named = house.imports(path.read_text(), name, is_package=house.is_package(path))
        known[name] = {other for one in named if (other := house.resolved(one.name, every)) not in {"", name}}
        mirrored = _below(known, f"sparkbuild{name.removeprefix('tests').rpartition('.')[0]}")
        known[name] |= mirrored if path.name.startswith("test_") else set()
        known[name] |= run if any(one.name in DOIT for one in named) else set()
    return known


def _below(known: Iterable[str], package: str) -> set[str]:
    """The modules of a package, without those of packages in it; none of sparkbuild/ itself."""
    inside = {name for name in known if name.rpartition(".")[0] == package}
    return inside if "." in package else set()


def reaching(files: Iterable[str], known: Mapping[str, set[str]]) -> list[str]:
    """The files and folders of tests that any of these files reaches; `known` as `imports` gives it."""
    files = list(files)
    touched = {house.dotted(ROOT / file) for file in files if file.endswith(".py")}
    above: dict[str, set[str]] = {}
    for name, others in known.items():
        for other in others:
            above.setdefault(other, set()).add(name)
    todo, reached = list(touched), set(touched)
    while todo:
        new = above.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    beside = {tests for file in files for start, tests in BESIDE.items() if file.startswith(start)}
    reached |= {name for name in known for file in files if _sets_up(file, name)}
    paths = {f"{name.replace('.', '/')}.py" for name in reached if name.rpartition(".")[2].startswith("test_")}
    there = {path for path in paths | beside if (ROOT / path).exists()}
    return sorted(path for path in there if path in beside or not path.startswith(tuple(f"{one}/" for one in beside)))


def _sets_up(file: str, name: str) -> bool:
    """Whether it is a conftest of these tests. What that imports itself is imported by those who use it."""
    return file.endswith("/conftest.py") and name.startswith(f"{house.dotted(ROOT / file).removesuffix('conftest')}")


def main(words: list[str]) -> int:
    """Run pytest in place of this process; 0 without it when a change reaches no test."""
    if "--changed" in words:
        words = [word for word in words if word != "--changed"]
        files = changed()
        chosen = reaching(files, imports()) if files else []
        sys.stdout.write(f"{len(files)} files changed: {len(chosen)} files of tests, and those of the tree\n")
        if not files:
            return 0
        words += [*chosen, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(ALWAYS))]
    if layers.only(words) == layers.UNIT and not any(word.startswith(("-n", "--numproc", "--pdb")) for word in words):
        words = [f"--numprocesses={os.cpu_count() or 1}", "--dist=worksteal", *words]
    sys.stdout.flush()
    return os.execv(sys.executable, [sys.executable, "-m", "pytest", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
