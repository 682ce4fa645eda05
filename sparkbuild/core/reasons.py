"""Why something is stale: one line per cause, old value -> new value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_WIDTH = 60  # characters of one value on screen; the JSON output is cut as well, values may be whole templates


class Reason(msgspec.Struct, frozen=True):
    """One cause. `part` names the key part, or what was looked at; `text` is the whole line."""

    part: str
    text: str
    old: str | None = None
    new: str | None = None


def shown(value: Any) -> str:
    """A value on one short line."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def changed(part: str, old: Any, new: Any) -> Reason:
    """`part` had one value and should have another."""
    old_text, new_text = _narrow(old, new)
    return Reason(part, f"{part}: {old_text} -> {new_text}", old_text, new_text)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Reason, ...]:
    """One reason per part that differs, in the order of the new parts, then the parts that are gone."""
    found = []
    for part, value in new.items():
        if part not in old:
            found.append(Reason(part, f"{part}: (none) -> {shown(value)}", None, shown(value)))
        elif old[part] != value:
            found.append(changed(part, old[part], value))
    found.extend(
        Reason(part, f"{part}: {shown(old[part])} -> (none)", shown(old[part]), None) for part in old if part not in new
    )
    return tuple(found)


def _narrow(old: Any, new: Any) -> tuple[str, str]:
    """Show only what differs of two long values: the changed items of lists and the changed keys of tables."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if key == "id" or old.get(key) != new.get(key)]  # the id says whose
        return shown({k: old[k] for k in keys if k in old}), shown({k: new[k] for k in keys if k in new})
    if isinstance(old, list) and isinstance(new, list):
        start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        end = 0
        while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
            end += 1
        if len(old) - end - start == len(new) - end - start == 1 and isinstance(old[start], dict):
            return _narrow(old[start], new[start])
        context = max(0, start - 1)  # the item before is most often the flag whose value changed
        return shown(old[context : len(old) - end]), shown(new[context : len(new) - end])
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _WIDTH:
        start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        cut = max(0, start - 8)
        return shown(("…" if cut else "") + old[cut:]), shown(("…" if cut else "") + new[cut:])
    return shown(old), shown(new)
