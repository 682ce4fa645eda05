"""Why something is stale: one line per cause, old value -> new value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_WIDTH = 60  # characters of one value on screen; the JSON output is cut as well, values may be whole templates
_PIECE = 36  # characters of one changed item inside a list or table, whose neighbours are shown too
_MOST = 100  # characters of a changed list or table, of which only what differs is left
_HASH = re.compile(r"(?<![0-9a-fA-F])([0-9a-f]{12})(?:[0-9a-f]{28}|[0-9a-f]{52})(?![0-9a-fA-F])")  # of git, and sha256


class Reason(msgspec.Struct, frozen=True):
    """One cause. `part` names the key part, or what was looked at; `text` is the whole line. `remark`: it is no cause,
    but says how the goal will be made.
    """

    part: str
    text: str
    old: str | None = None
    new: str | None = None
    remark: bool = False

    @property
    def because(self) -> str:
        """The line as a run tells it."""
        return self.text if self.remark else f"because {self.text}"


def shown(value: Any) -> str:
    """A value on one short line, of each hash its first 12 digits."""
    text = _text(_short(value))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def changed(part: str, old: Any, new: Any) -> Reason:
    """`part` had one value and should have another."""
    old_text, new_text = _pair(_short(old), _short(new))
    if old_text == new_text:  # hashes with the same beginning
        old_text, new_text = _pair(old, new)
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


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())


def _short(value: Any) -> Any:
    """A value whose hashes are short, and whose tables are sorted, the id first: it says whose all the rest is."""
    if isinstance(value, str):
        return _HASH.sub(r"\1", value)
    if isinstance(value, dict):
        return {name: _short(value[name]) for name in sorted(value, key=lambda name: (name != "id", name))}
    return [_short(one) for one in value] if isinstance(value, list | tuple) else value


def _pair(old: Any, new: Any) -> tuple[str, str]:
    """Two values as short lines that show where they differ."""
    before, after = map(_text, (old, new) if isinstance(old, str) and isinstance(new, str) else _narrow(old, new))
    most = _WIDTH if isinstance(old, str) and isinstance(new, str) else _MOST
    return (before, after) if max(len(before), len(after)) <= most else _window(before, after)


def _narrow(old: Any, new: Any) -> tuple[Any, Any]:
    """Only what differs of two values: the changed keys of tables and the changed items of lists, however deep."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if key == "id" or old.get(key) != new.get(key)]
        both = {key: _narrow(old[key], new[key]) for key in keys if key in old and key in new}
        before = {key: both[key][0] if key in both else old[key] for key in keys if key in old}
        return before, {key: both[key][1] if key in both else new[key] for key in keys if key in new}
    if isinstance(old, list) and isinstance(new, list):
        named = [
            {one["id"]: one for one in side if isinstance(one, dict) and isinstance(one.get("id"), str)}
            for side in (old, new)
        ]
        if old and new and [len(side) for side in named] == [len(old), len(new)]:
            return _narrow_named(*named)
        return _narrow_lists(old, new)
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _PIECE:
        return _window(old, new, _PIECE)
    return old, new


def _narrow_named(old: dict[Any, Any], new: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Tables in a list that have an id each: what differs of those that changed, the ids of those that came or went."""
    pairs = [_narrow(old[name], new[name]) for name in new if name in old and old[name] != new[name]]
    gone, come = ([{"id": name} for name in one if name not in other] for one, other in ((old, new), (new, old)))
    if not pairs and not gone and not come:  # another order
        return list(old), list(new)
    return [pair[0] for pair in pairs] + gone, [pair[1] for pair in pairs] + come


def _narrow_lists(old: list[Any], new: list[Any]) -> tuple[list[Any], list[Any]]:
    start, end = _common(old, new)
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    context = old[max(0, start - 1) : start]  # the item before is most often the flag whose value changed
    if len(before) == len(after) == 1:
        one, other = _narrow(before[0], after[0])
        before, after = [one], [other]
    return context + before, context + after


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
