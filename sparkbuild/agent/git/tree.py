"""All files of a git tree with its submodules, checked for names and links that would lead out of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sparkbuild.agent.git.objects import FOLDER, GITLINK, LINK, HostileTreeError, Objects
from sparkbuild.agent.wire.protocol import config_error, integrity_error

ENTRIES = 1_000_000  # files and folders; a tree may name one subtree a thousand times at each of ten levels
_HELD = 160 << 20  # bytes that these may take here, by a rough count: 300,000 files, where LLVM has 160,000
_EACH = 450  # bytes beside the path
_HOPS = 40  # links that are followed, as Linux does

# What other file systems take for `.git`: HFS+ drops these, NTFS ends and shortens names.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DOT_GIT = re.compile(r"(?:\.git|git~[0-9]+)[. ]*(?::.*)?", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Entry(NamedTuple):
    """A file, link or folder. `path` is relative to the top; `objects` is the repository that has the bytes."""

    path: bytes
    mode: int
    oid: str
    objects: Objects | None


class Module(NamedTuple):
    """A locked submodule, with the repository that has it."""

    commit: str
    tree: str
    objects: Objects


class Loose(NamedTuple):
    """A submodule that the tree has and the lock does not."""

    path: str
    commit: str


def walk(objects: Objects, tree: str, modules: Mapping[str, Module]) -> tuple[list[Entry], list[Loose]]:
    """Everything in the tree, sorted by path, links checked; and the submodules that are not among `modules`.

    Raises BrokenMirrorError, HostileTreeError, and AgentError for a locked submodule that is not there or another.
    """
    entries: dict[bytes, Entry] = {}
    loose: list[Loose] = []
    seen: set[str] = set()
    held = 0
    todo: list[tuple[bytes, str, Objects]] = [(b"", tree, objects)]
    while todo:
        prefix, oid, reader = todo.pop()
        for item in reader.tree(oid):
            _check_name(item.name, prefix)
            path = prefix + item.name
            if path in entries:
                raise HostileTreeError(f"{shown(path)} stands there twice")
            if len(entries) >= ENTRIES:
                raise HostileTreeError(f"it has more than {ENTRIES} files")
            held += _EACH + 2 * len(path)
            if held > _HELD:
                raise HostileTreeError(f"its {len(entries)} files and more have too long paths to be held in memory")
            entries[path] = Entry(path, FOLDER if item.mode == GITLINK else item.mode, item.oid, reader)
            if item.mode == FOLDER:
                todo.append((path + b"/", item.oid, reader))
            elif item.mode == GITLINK:
                name = path.decode(errors="replace")
                module = modules.get(name)
                if module is None:
                    loose.append(Loose(name, item.oid))
                    continue
                seen.add(name)
                _check_module(name, module, item.oid)
                todo.append((path + b"/", module.tree, module.objects))
    missing = sorted(set(modules) - seen)
    if missing and not loose:
        raise config_error(
            "the lock has a submodule that the tree does not have",
            found=", ".join(missing),
            next="take its lines out of the lock",
        )
    _check_links(entries)
    return [entries[path] for path in sorted(entries)], sorted(loose)


def shown(path: bytes) -> str:
    """A path in a message."""
    text = path.decode(errors="backslashreplace")
    return text if text.isprintable() else ascii(text)[1:-1]


def _check_name(name: bytes, prefix: bytes) -> None:
    text = _IGNORED.sub("", name.decode(errors="surrogateescape"))
    if name in {b"", b".", b".."} or b"/" in name or _DOT_GIT.fullmatch(text):
        raise HostileTreeError(f"{shown(prefix + name)!r} is a name that leads elsewhere")
    if _CONTROL.search(name) or len(name) > 255 or len(prefix) + len(name) > 4000:
        raise HostileTreeError(f"{shown(prefix + name)[:200]!r} cannot be a file name")


def _check_module(name: str, module: Module, gitlink: str) -> None:
    if module.commit != gitlink:
        raise integrity_error(
            f"submodule {name} is locked to another commit than the tree names",
            found=module.commit,
            wanted=gitlink,
            next="`doit lock:update` writes the submodules anew",
        )


def _check_links(found: dict[bytes, Entry]) -> None:
    """Every symbolic link must stay inside, wherever the links on its way lead."""
    targets: dict[bytes, bytes] = {}
    for path, entry in found.items():
        if entry.mode == LINK and entry.objects is not None:
            targets[path] = entry.objects.blob(entry.oid)
    for path, target in targets.items():
        if _CONTROL.search(target) or not target or len(target) > 4095:
            raise HostileTreeError(f"{shown(path)} is a link whose target cannot be one")
        if _leads_out(path, targets):
            raise HostileTreeError(f"{shown(path)} is a link that leads out of the tree, to {shown(target)!r}")


def _leads_out(link: bytes, targets: Mapping[bytes, bytes]) -> bool:
    at: list[bytes] = []
    left = link.split(b"/")[::-1]
    hops = 0
    while left:
        step = left.pop()
        if step in {b"", b"."}:
            continue
        if step == b"..":
            if not at:
                return True
            at.pop()
            continue
        at.append(step)
        target = targets.get(b"/".join(at))
        if target is not None:
            hops += 1
            if target.startswith(b"/"):
                return True
            if hops > _HOPS:
                return False  # a loop: opening it is an error, and leads nowhere
            at.pop()
            left.extend(target.split(b"/")[::-1])
    return False
