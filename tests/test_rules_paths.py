"""The rule of paths: on a node, what is removed, renamed or opened for writing is named by a held folder and a name.

`sparkbuild/agent/disk/held.py` owns these calls. A plain path follows every link on the way to it, so that whoever may
write to a folder there, or moved one, decides what is removed or written over.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("stage", "evict", "lane", "ledger", "export", "hub", "rows", "image")
OWNER = "disk/held.py"
CALLS = {
    "os": {"unlink", "remove", "rename", "replace", "renames", "removedirs", "truncate", "link", "symlink", "mkfifo"},
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree"},
}
WRITES = {"O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC", "O_APPEND"}


def plain_calls(source: str) -> list[tuple[int, str]]:
    """(line, what) of each call that changes or writes to what a plain path leads to."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            module, name = called.value.id, called.attr
            if name in CALLS.get(module, ()) and not any(
                one.arg and one.arg.endswith("dir_fd") for one in node.keywords
            ):
                found.append((node.lineno, f"{module}.{name}"))
            if (module, name) == ("os", "open") and WRITES & {
                one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
            }:
                found.append((node.lineno, "os.open to write"))
        if isinstance(called, ast.Name) and called.id == "open" and _writes(node):
            found.append((node.lineno, "open to write"))
    return found


def _writes(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "mode")]
    return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)


def test_the_rule_sees_what_it_is_for() -> None:
    seen = """
import os, shutil
os.unlink(a); os.rename(a, b); shutil.rmtree(a); open(a, "wb"); open(a, mode); os.open(a, os.O_WRONLY | os.O_CREAT)
os.unlink(a, dir_fd=fd); open(a); open(a, "rb"); os.open(a, os.O_RDONLY); text.replace(a, b)
"""
    assert [what for _, what in plain_calls(seen)] == [
        "os.unlink", "os.rename", "shutil.rmtree", "open to write", "open to write", "os.open to write",
    ]  # fmt: skip


def test_nothing_on_a_node_is_changed_by_a_plain_path() -> None:
    agent = ROOT / "sparkbuild/agent"
    wrong = [
        f"sparkbuild/agent/{path.relative_to(agent)}:{line}: {what}: name it by a folder that is held ({OWNER})"
        for room in ROOMS
        for path in sorted((agent / room).rglob("*.py"))
        for line, what in plain_calls(path.read_text(encoding="utf-8"))
        if f"{path.relative_to(agent)}: {what}" not in EXCEPT
    ]
    assert not wrong, "\n".join(wrong)


def test_no_exception_is_left_over() -> None:
    agent = ROOT / "sparkbuild/agent"
    used = {
        f"{path.relative_to(agent)}: {what}"
        for room in ROOMS
        for path in (agent / room).rglob("*.py")
        for _, what in plain_calls(path.read_text(encoding="utf-8"))
    }
    assert set(EXCEPT) <= used


# What else may be, by file and call, each with its reason.
_UNPACKED = "into a folder made just now; every name was checked, and links come last, so that none is written through"
EXCEPT = {"image/context.py: open to write": _UNPACKED, "image/context.py: os.symlink": _UNPACKED}
