"""An engine is asked by one owner on each side: no other module opens a connection to one."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "sparkbuild"
CLIENTS = {"httpx", "http.client", "urllib.request", "requests", "aiohttp"}
# who speaks HTTP, and with whom
OWNERS = {
    "nodes/engine.py": "engines",
    "upstream/boundedhttp.py": "registries",
}


def clients(path: Path) -> set[str]:
    """The HTTP libraries that a module imports, but for type annotations."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return names & CLIENTS


def test_who_asks_over_http() -> None:
    found = {
        str(path.relative_to(PACKAGE)): libraries
        for room in ("core", "workspace", "nodes", "upstream", "serving", "gates", "bench", "app", "plugin")
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if (libraries := clients(path))
    }
    strangers = set(found) - set(OWNERS)
    # docker-py's own errors are those of requests: to catch them is not to ask
    asking = {path for path in strangers if found[path] - {"requests"}}
    assert not asking, f"ask through nodes/engine.py: {asking}"


def test_an_agent_asks_an_engine_in_one_place() -> None:
    """`unixhttp.Answer` is the agent's HTTP; an engine is asked with it in lane/answers.py alone."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in sorted((PACKAGE / "agent/lane").rglob("*.py"))
        if "unixhttp" in path.read_text()
    }
    assert users == {"agent/lane/answers.py"}
