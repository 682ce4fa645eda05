"""Why something is stale: one line per cause, old value -> new value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_WIDTH = 60  # characters of one value on screen; the JSON output is cut as well, values may be whole templates
_PIECE = 36  # characters of one changed item in a list, whose neighbour is shown too


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
        return _narrow_lists(old, new)
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _WIDTH:
        return _window(old, new)
    return shown(old), shown(new)


def _narrow_lists(old: list[Any], new: list[Any]) -> tuple[str, str]:
    start, end = _common(old, new)
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    if len(before) == len(after) == 1:
        if isinstance(before[0], dict):
            return _narrow(before[0], after[0])
        if isinstance(before[0], str) and isinstance(after[0], str) and max(len(before[0]), len(after[0])) > _PIECE:
            one, other = _window(before[0], after[0], _PIECE)
            before, after = [one], [other]
    context = old[max(0, start - 1) : start]  # the item before is most often the flag whose value changed
    return shown(context + before), shown(context + after)


def _window(old: str, new: str, width: int = _WIDTH) -> tuple[str, str]:
    """The places in two texts where they differ, with a little before."""
    start, _ = _common(old, new)
    cut = max(0, start - 8)
    lead = "…" if cut else ""

    def part(text: str) -> str:
        return lead + (text[cut:] if len(text) - cut <= width else f"{text[cut : cut + width]}…")

    return part(old), part(new)


def _common(old: Sequence[Any], new: Sequence[Any]) -> tuple[int, int]:
    """How many items two sequences share at their start, and then at their end."""
    least = min(len(old), len(new))
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), least)
    end = 0
    while end < least - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end
