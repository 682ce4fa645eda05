"""The text of a source lock, `local-inference-source-lock/v1`: lines of key=value, with comments. No file access.

Split at the first `=`; values may hold spaces and more `=`; nothing is quoted or escaped; blank lines and lines
starting with `#` are skipped; the first line is the format. As read in the public locks of local-inference-lab.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from sparkbuild.core.errors import LockError

FORMAT = "local-inference-source-lock/v1"
EPOCH = "epoch"  # the key of the time that all files of an image get

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HEX_DIGITS = {".sha256": 64, ".commit": 40, ".tree": 40}
_HEX = re.compile(r"[0-9a-f]+")
_NONE: Mapping[str, str] = MappingProxyType({})


class Line(msgspec.Struct, frozen=True):
    """One key=value line; `number` counts from 1."""

    number: int
    key: str
    value: str


class LockValues(msgspec.Struct, frozen=True):
    """The values of a lock, and where they stand. `path` is relative to the workspace; `lines` says on which line each
    key stands.

    `sha256` is that of its own sorted key=value pairs, so comments and order do not change it. `values` also has those
    of the files that it includes; `included` says where each of these stands, as path:line.
    """

    name: str
    path: str
    values: dict[str, str]
    sha256: str
    lines: dict[str, int] = {}
    included: dict[str, str] = {}

    def where(self, key: str) -> str:
        """path:line of a key."""
        return self.included.get(key) or f"{self.path}:{self.lines.get(key, 1)}"

    def inputs(self) -> dict[str, str]:
        """The local files the lock pins: wanted sha256 by path relative to the workspace."""
        return {name: self.values[key] for key in self.values if (name := input_name(key))}


def input_key(name: str) -> str:
    """The key that pins a local file; `name` is its path relative to the workspace."""
    return f"input.{name}.sha256"


def input_name(key: str) -> str:
    """The path in an `input.<path>.sha256` key, or "" for any other key."""
    if key.startswith("input.") and key.endswith(".sha256"):
        return key[len("input.") : -len(".sha256")]
    return ""


def scan(text: str, path: str) -> list[Line]:
    """The key=value lines, the format line first. Checks the form of the text, not what the values mean.

    Raises LockError with `where` as path:line.
    """
    first = text.partition("\n")[0]
    if first != f"format={FORMAT}":
        raise LockError(
            "not a source lock of a known format",
            where=f"{path}:1",
            found=repr(first[:200]),
            wanted=f"format={FORMAT}",
            next=f"write that as the first line of {path}" + (", with LF line ends" if first.endswith("\r") else ""),
        )
    lines: list[Line] = []
    seen: dict[str, int] = {}
    for number, raw in enumerate(text.split("\n"), start=1):  # not splitlines: it splits at far more than LF
        bare = raw.strip(" \t")
        if not bare or bare.startswith("#"):
            continue
        where = f"{path}:{number}"
        key, equals, value = raw.partition("=")
        if not equals:
            raise LockError("a line without `=`", where=where, found=repr(raw[:200]), wanted="key=value or # comment")
        problem = _form(key, value)
        if problem:
            raise LockError(problem, where=where, found=repr(raw[:200]), wanted="key=value, in plain characters")
        if key in seen:
            raise LockError(
                f"`{key}` stands there twice",
                where=where,
                found=f"first on line {seen[key]}, again on line {number}",
                wanted="each key once",
                next=f"remove one of the two lines from {path}",
            )
        seen[key] = number
        lines.append(Line(number, key, value))
    return lines


def _form(key: str, value: str) -> str:
    """What is wrong with the form of a pair, or ""."""
    if not key.strip():
        return "a line without a key before the `=`"
    if value.endswith("\r"):
        return "a carriage return at the end of the line (save the file with LF line ends)"
    if _CONTROL.search(key) or _CONTROL.search(value):
        return "a control character in the line"
    if key != key.strip() or value != value.strip():
        return "spaces around the key or the value (they would become part of it)"
    if key.startswith("#"):
        return "a key that starts with `#` would be a comment"
    return ""


def check_value(key: str, value: str, where: str) -> None:
    """Raise LockError when the key asks for a hash or a time and the value is none."""
    if key == EPOCH and not re.fullmatch(r"0|[1-9][0-9]{0,10}", value):
        raise LockError(f"`{EPOCH}` is no time", where=where, found=repr(value[:80]), wanted="unix seconds")
    _, dot, ending = key.rpartition(".")
    digits = _HEX_DIGITS.get(dot + ending)
    if digits and (len(value) != digits or not _HEX.fullmatch(value)):
        raise LockError(
            f"`{key}` is not a {ending}",
            where=where,
            found=f"{value[:80]!r} ({len(value)} characters)",
            wanted=f"{digits} lowercase hex digits",
            next=_advice(key, value, where),
        )


def _advice(key: str, value: str, where: str) -> str:
    """How to get the hash that is wanted: `where` names the lock's file."""
    component, _, ending = key.rpartition(".")
    lock = where.rpartition(":")[0].rpartition("/")[2].removesuffix(".source.lock") or "LOCK"
    if key.startswith(("input.", "include.")):
        return f"`doit lock:pin:{lock}` writes it, of the file as it is now"
    if ending not in {"commit", "tree"} or ".submodule." in key:
        return ""
    update = f"`doit lock:update {lock} {component}=REF`"
    if _HEX.fullmatch(value) and len(value) == 64:
        return "a repository with sha256 objects cannot be locked: use one with sha1 objects, as git makes them"
    if _HEX.fullmatch(value) and 4 <= len(value) < 40:
        return f"abbreviated, it may mean another one tomorrow: `git rev-parse {value}` tells it whole, {update} too"
    return f"{update} writes it"


def check_pairs(pairs: Mapping[str, str]) -> None:
    """Raise LockError when a pair could not be written and read again as it is."""
    for key, value in pairs.items():
        problem = _form(key, value) or ("a key with `=` in it" if "=" in key else "")
        if problem:
            raise LockError(f"cannot be written to a lock: {problem}", found=repr(f"{key}={value}"[:200]))
        if key == "format" and value != FORMAT:
            raise LockError("cannot be written to a lock: another format", found=repr(value[:80]), wanted=FORMAT)
        check_value(key, value, "")


def dump(values: Mapping[str, str], comments: Mapping[str, str] = _NONE) -> str:
    """A new lock text: the format, then the values in their order. `comments[key]` is put above that key's line,
    `comments[""]` above all of them.

    Raises LockError for what the format cannot hold.
    """
    check_pairs(values)
    lines = [f"format={FORMAT}", *_comment(comments.get("", ""))]
    for key, value in values.items():
        if key != "format":
            lines.extend(_comment(comments.get(key, "")))
            lines.append(f"{key}={value}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {_CONTROL.sub(' ', line)}".rstrip() for line in text.split("\n")] if text else []


def update(
    text: str, changes: Mapping[str, str], path: str = "lock", *, beside: bool = False, without: Collection[str] = ()
) -> str:
    """The same lock text with other values; comments and order stay, new keys are appended, or with `beside` put after
    the key they share most of their beginning with. The lines of the keys `without` are taken out.

    Raises LockError for what the format cannot hold, or when `text` is no lock.
    """
    check_pairs(changes)
    at = {line.key: line.number - 1 for line in scan(text, path)}
    lines = text.split("\n")
    after: dict[int, list[str]] = {}
    added = []
    for key, value in changes.items():
        new = f"{key}={value}"
        if key in at:
            lines[at[key]] = new
            continue
        near = _nearest(key, at) if beside else None
        if near is None:
            added.append(new)
        else:
            after.setdefault(at[near], []).append(new)
    gone = {at[key] for key in without if key in at and key != "format"}
    kept = [
        piece
        for number, line in enumerate(lines)
        for piece in ([] if number in gone else [line]) + after.get(number, [])
    ]
    if added:
        if kept[-1].strip(" \t"):  # the file does not end with a line end
            kept.append("")
        kept[-1:] = [*added, ""]
    return "\n".join(kept)


def _nearest(key: str, keys: Mapping[str, int]) -> str | None:
    """The last key of those that share the most dotted parts with `key`, at least one; None when there is none."""
    parts = key.split(".")

    def shared(other: str) -> int:
        pairs = zip(parts, other.split("."), strict=False)
        return next(
            (count for count, (one, two) in enumerate(pairs) if one != two), min(len(parts), other.count(".") + 1)
        )

    best = max(keys, key=lambda other: (shared(other), keys[other]))
    return best if shared(best) else None
