"""The walls of the house: which packages of the agent may import which, and no circle between modules or packages.

A package is a folder with modules. An import inside a function or under TYPE_CHECKING counts as any other: a circle
that is closed late is a circle, and it shows that something stands in the wrong module.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Set as AbstractSet

import pytest
import tomli

from sparkbuild.agent import facts, main
from sparkbuild.agent.source import opened, plan
from tests.house import REPOSITORY, dotted, imports, imports_of_modules, is_package, modules, resolved

AGENT = "sparkbuild.agent"
ROOT = "sparkbuild"  # only says the version: it is below all, and what runs the package stands in it too

# What each package of the agent may import of the others. Its own modules (main, facts, node, unpack) may import all.
MAY_IMPORT: dict[str, set[str]] = {
    "wire": set(),
    "disk": {"wire"},
    "machine": {"disk", "wire"},
    "store": {"disk", "wire"},
    "git": {"disk", "store", "wire"},
    "docker": {"disk", "machine", "store", "wire"},
    "image": {"disk", "docker", "git", "store", "wire"},
    "ledger": {"disk", "machine", "wire"},
    "lane": {"disk", "docker", "ledger", "machine", "wire"},
    "source": {"disk", "ledger", "wire"},
    "hub": {"disk", "ledger", "source", "wire"},
    "rows": {"disk", "hub", "ledger", "source", "wire"},
    "peers": {"disk", "ledger", "store", "wire"},
    "stage": {"disk", "lane", "ledger", "machine", "peers", "source", "wire"},
    "export": {"disk", "hub", "lane", "ledger", "source", "wire"},
    "evict": {"disk", "docker", "lane", "ledger", "wire"},
}


def wall(module: str, other: str) -> str:
    """Why a module of the agent may not import another module of it; "" when it may, and for modules of the rest."""
    above, beside = _package_in_agent(module), _package_in_agent(other)
    if above in {"", beside} or not other.startswith(f"{AGENT}."):
        return ""
    if not beside:
        return f"{above} may import no module of {AGENT} that is in no package"
    return "" if beside in MAY_IMPORT[above] else f"{above} may import only {sorted(MAY_IMPORT[above])}"


def _package_in_agent(module: str) -> str:
    """The package of the agent that a module is in, or is; "" for the agent's own modules, and for the rest."""
    name = module.removeprefix(f"{AGENT}.").partition(".")[0]
    return name if module.startswith(f"{AGENT}.") and name in MAY_IMPORT else ""


def packages(imported: Mapping[str, AbstractSet[str]], inits: AbstractSet[str]) -> dict[str, set[str]]:
    """From what modules import, what packages import; `inits` are the modules that are packages themselves."""

    def package(module: str) -> str:
        return module if module in inits else module.rpartition(".")[0]

    found: dict[str, set[str]] = {}
    for module, others in imported.items():
        found.setdefault(package(module), set()).update(map(package, others))
    return {name: others - {name, ROOT} for name, others in found.items()}


def circles(imported: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """The circles of a graph of imports: sets of names of which each imports every other, directly or not, sorted."""
    reached: dict[str, set[str]] = {}
    for start in imported:
        seen: set[str] = set()
        new = [start]
        while new:
            for other in imported.get(new.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    new.append(other)
        reached[start] = seen
    in_circles = {
        tuple(sorted(other for other in others if name in reached.get(other, ())))
        for name, others in reached.items()
        if name in others
    }
    return sorted(map(list, in_circles))


def test_packages_of_the_agent_import_what_is_below_them() -> None:
    known = {dotted(path): path for path in modules()}
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{found.line}: imports {found.name}: {why}"
        for module, path in known.items()
        for found in imports(path.read_text(), module, is_package=is_package(path))
        if (why := wall(module, resolved(found.name, known)))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_package_of_the_agent_has_its_row() -> None:
    there = {
        dotted(path).split(".")[2] for path in modules() if dotted(path).startswith(f"{AGENT}.") and is_package(path)
    }
    assert there == set(MAY_IMPORT)


def test_no_module_is_in_a_circle() -> None:
    assert circles(imports_of_modules()) == []


def test_no_package_is_in_a_circle() -> None:
    inits = {dotted(path) for path in modules() if is_package(path)}
    imported = imports_of_modules()
    assert imported[ROOT] == set()
    assert circles(packages(imported, inits)) == []


@pytest.mark.parametrize(
    ("table", "function"),
    [
        ({verb: f"{AGENT}.{name}" for verb, name in main.VERBS.items()}, "run"),
        ({scheme: f"{AGENT}.{name}" for scheme, name in facts.OBSERVERS.items()}, "observe"),
        (plan._PLANNERS, "file_set"),
        (opened._ELSEWHERE, "RowSource"),
    ],
)
def test_a_table_of_names_names_what_is_there(table: dict[str, str], function: str) -> None:
    """No type checker reads them, and a module that moved would be missed on a node first."""
    wrong = {key: name for key, name in table.items() if not callable(getattr(importlib.import_module(name), function))}
    assert table
    assert not wrong


def test_entry_points_are_there() -> None:
    project = tomli.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = [name for group in project["entry-points"].values() for name in group.values()]
    places = [name.split(":") for name in named]
    assert named
    assert all(hasattr(importlib.import_module(module), attribute) for module, attribute in places)


@pytest.mark.parametrize(
    ("module", "other", "allowed"),
    [
        ("agent.ledger.index", "agent.disk.files", True),
        ("agent.ledger.index", "agent.ledger", True),
        ("agent.ledger.index", "agent.lane.records", False),
        ("agent.docker.images", "agent.image.archives", False),
        ("agent.image.archives", "agent.docker.images", True),
        ("agent.wire.records", "agent.disk.files", False),
        ("agent.lane.launch", "agent.main", False),
        ("agent.main", "agent.lane.launch", True),
        ("agent.facts", "agent.node", True),
        ("serving.lane", "agent.lane.launch", True),  # which test_house.py refuses
    ],
)
def test_the_rule_of_the_agent_itself(module: str, other: str, allowed: bool) -> None:
    assert (wall(f"sparkbuild.{module}", f"sparkbuild.{other}") == "") is allowed


@pytest.mark.parametrize(
    ("imported", "found"),
    [
        ({}, []),
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": {"elsewhere"}}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"x": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a", "y"}, "y": set()}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["a", "b"], ["c", "d"]]),
    ],
)
def test_the_rule_of_circles_itself(imported: dict[str, set[str]], found: list[list[str]]) -> None:
    assert circles(imported) == found


def test_a_circle_of_packages_needs_none_of_modules() -> None:
    imported = {
        "s.a.one": {"s.b.one"},
        "s.b.two": {"s.a.two"},
        "s.a.two": {"s.a.three"},
        "s.b.one": {"s.b"},
        "s.b": set(),
    }
    assert circles(imported) == []
    assert packages(imported, {"s.a", "s.b"}) == {"s.a": {"s.b"}, "s.b": {"s.a"}}
    assert circles(packages(imported, {"s.a", "s.b"})) == [["s.a", "s.b"]]


def test_a_package_below_another_is_one_of_its_own() -> None:
    imported = {"s.a.one": {"s.a.b.two"}, "s.a.b.two": {"s.a.three"}, "s.a.three": set()}
    assert circles(packages(imported, {"s.a", "s.a.b"})) == [["s.a", "s.a.b"]]
