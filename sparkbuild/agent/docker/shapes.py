"""Holding docker's answers against answers.py: a field of another type than the API says counts as not there.

Whatever sits behind the socket (another engine, a proxy, a newer version) may say anything; who reads a field can then
rely on its type, and asks only whether it is there.
"""

from __future__ import annotations

from typing import Any

_OBJECT, _LIST, _TEXT, _NUMBER = (dict,), (list,), (str,), (int,)
# Type of a field, and of its items where it is a list. Names mean the same wherever they stand, but for `State`: a word
# in a list of containers, an object of one container.
_FIELDS: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    **dict.fromkeys(
        ("Config", "Labels", "RootFS", "HostConfig", "Runtimes", "Metadata", "progressDetail"), (_OBJECT, ())
    ),
    **dict.fromkeys(("Mounts", "Devices", "DeviceRequests", "BuildCache"), (_LIST, _OBJECT)),
    **dict.fromkeys(
        ("Names", "RepoTags", "RepoDigests", "Layers", "Env", "Entrypoint", "Cmd", "CDISpecDirs", "SecurityOptions",
         "DeviceIDs"), (_LIST, _TEXT)
    ),
    **dict.fromkeys(("Capabilities", "DriverStatus"), (_LIST, _LIST)),
    **dict.fromkeys(("Size", "Pid", "SpaceReclaimed", "current", "total"), (_NUMBER, ())),
    **dict.fromkeys(("Id", "Name", "Architecture", "id", "status", "stream"), (_TEXT, ())),
    "State": ((str, dict), ()),
    "Created": ((int, str), ()),
}  # fmt: skip
_DEEPEST = 8  # levels at which docker has any of these


def shaped(value: Any, depth: int = 0) -> Any:
    """The answer without the fields, and without the items of lists, that have another type."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [shaped(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    answer: dict[str, object] = {}
    for name, field in value.items():
        types, items = _FIELDS.get(name, ((), ()))
        if types and (not isinstance(field, types) or isinstance(field, bool)):
            continue
        if name == "Labels":  # whoever makes a container names its labels: none of these is a field of docker's
            answer[name] = {label: text for label, text in field.items() if isinstance(text, str)}
        else:
            kept = [item for item in field if isinstance(item, items)] if items else field
            answer[name] = shaped(kept, depth + 1)
    return answer
