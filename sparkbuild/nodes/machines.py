"""Which nodes are one machine under several names, by what they say of themselves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def same_machine(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Nodes that are the machine of an earlier one: node to that one. By name and boot: machines of one rack share a
    name when nobody gave them any, and containers on one machine share its boot.
    """
    first: dict[tuple[str, str], str] = {}
    found = {}
    for node, fact in facts.items():
        machine = (str(fact.get("host") or ""), str(fact.get("boot_id") or ""))
        if all(machine) and first.setdefault(machine, node) != node:
            found[node] = first[machine]
    return found
