"""The rule that an age is the difference of two times of one clock."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1] / "sparkbuild"
NOTED = re.compile(r"launched|served_at|stopped_at|staged_at|stopping")  # times that nodes note, by their own clocks


def test_no_time_of_a_node_is_compared_with_the_time_here() -> None:
    found = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "agent"):  # on the node itself it is the same clock
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                text = ast.unparse(node)
                if "time.time()" in text and (NOTED.search(text) or '"since"' in text.replace("'", '"')):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    # a claim of a task's lock is of this very machine
    assert [one for one in found if not one.startswith("core/locks.py")] == [], "ask the node: its `now`, or the age"
