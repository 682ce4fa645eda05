"""Files of other projects that a lock includes: `sources.manifest` rows and `KEY=VALUE` files, read as keys of a lock.

A manifest's rows are `component commit sha256 url`, with any blanks between; `#` comments and blank lines are skipped.
A row becomes `<component>.commit`, `.bundle.sha256` and `.repository`; where the url is a download and no git
repository (it does not end in `.git`), `.artifact.url` and `.artifact.sha256` as well. `local <path> <sha256> -` pins a
file beside the manifest. A file of KEY=VALUE lines becomes `<name>.<KEY>`: name is the file's name up to its first dot.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.workspace.files.inputs import check_name, read_input
from sparkbuild.workspace.files.smallfile import UnreadableError, read_small

LIMIT = 1 << 20  # bytes; real ones have some kilobytes
ROWS = 10_000

_PREFIX, _ENDING = "include.", ".sha256"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,127}")
_KEY = re.compile(r"(?:export[ \t]+)?(?P<key>[A-Za-z_][A-Za-z0-9_.-]{0,127})")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Pair(msgspec.Struct, frozen=True):
    """One key of an included file; `where` is its path:line."""

    key: str
    value: str
    where: str


def include_name(key: str) -> str:
    """The path in an `include.<path>.sha256` key, or "" for any other key."""
    if key.startswith(_PREFIX) and key.endswith(_ENDING):
        return key[len(_PREFIX) : -len(_ENDING)]
    return ""


def include(root: str, path: str, sha256: str, where: str, lock: str) -> list[Pair]:
    """The keys of an included file (path relative to the workspace), which must have that sha256.

    Raises LockError: it cannot be read, is not what the lock pins, or is neither of the two forms.
    """
    try:
        found = read_input(root, "", path).sha256
        data = read_small(f"{root}/{path}", LIMIT)
    except ConfigError as error:
        raise LockError(error.what, where=where, found=error.found, wanted=error.wanted, next=error.next) from error
    except UnreadableError as error:
        raise LockError(f"{path} {error.what}", where=where, found=error.found, wanted=error.wanted) from error
    if found != sha256:
        raise LockError(
            f"{path} is not what the lock pins",
            where=where,
            found=found,
            wanted=sha256,
            next=f"restore the file, or run `doit lock:pin:{lock}` to pin it as it is now",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LockError(f"{path} is not UTF-8", where=f"{path}:{line}") from error
    return pairs(text, path)


def pairs(text: str, path: str) -> list[Pair]:
    """The keys in the text of an included file. Which of the two forms it has is told by its first line.

    Raises LockError with `where` as path:line; a file that was cut off in a row or a line is one of the cases.
    """
    rows = [(number, line.strip(" \t\r")) for number, line in enumerate(text.split("\n"), start=1)]
    rows = [(number, line) for number, line in rows if line and not line.startswith("#")]
    if not rows:
        raise LockError(f"{path} holds nothing", where=f"{path}:1", wanted=_FORMS)
    if not text.endswith("\n"):
        what = f"the last line of {path} has no end: it may be cut off"
        raise LockError(what, where=f"{path}:{rows[-1][0]}", found=repr(rows[-1][1][:200]))
    if len(rows) > ROWS:
        raise LockError(f"{path} has too many rows", where=f"{path}:{rows[ROWS][0]}", wanted=f"at most {ROWS}")
    is_manifest = _KEY.match(rows[0][1]) is None or "=" not in rows[0][1].split()[0]
    found: list[Pair] = []
    first: dict[str, int] = {}
    for number, line in rows:
        where = f"{path}:{number}"
        if _CONTROL.search(line):
            raise LockError("a control character in the line", where=where, found=repr(line[:200]))
        made = _row(line, where, path) if is_manifest else [_assignment(line, where, path)]
        for pair in made:
            if pair.key in first:
                again = f"first on line {first[pair.key]}, again on line {number}"
                raise LockError(f"`{pair.key}` stands there twice", where=where, found=again, wanted="each once")
            first[pair.key] = number
        found.extend(made)
    return found


_FORMS = "rows of `component commit sha256 url`, or lines of KEY=VALUE"


def _row(line: str, where: str, path: str) -> list[Pair]:
    cells = line.split()
    if len(cells) != 4:
        found = f"{len(cells)} columns: {line[:200]!r}"
        raise LockError("not a row of a manifest", where=where, found=found, wanted="component commit sha256 url")
    component, commit, sha256, url = cells
    if component == "local":
        return [_local(commit, sha256, where, path)]
    wrong = (
        ("component", component, _COMPONENT.fullmatch(component) and ".." not in component, "a plain name"),
        ("commit", commit, _COMMIT.fullmatch(commit), "40 lowercase hex digits"),
        ("sha256", sha256, _SHA256.fullmatch(sha256), "64 lowercase hex digits"),
        ("url", re.sub(r"//[^/@]*@", "//...@", url), _plain_url(url), "an https:// URL without user name or password"),
    )
    for column, found, fits, wanted in wrong:
        if not fits:
            raise LockError(f"the {column} cannot be used", where=where, found=repr(found[:200]), wanted=wanted)
    values = {"commit": commit, "bundle.sha256": sha256, "repository": url}
    if not url.endswith(".git"):
        values |= {"artifact.url": url, "artifact.sha256": sha256}
    return [Pair(f"{component}.{key}", value, where) for key, value in values.items()]


def _local(name: str, sha256: str, where: str, path: str) -> Pair:
    """`local <path> <sha256> -`: a file kept beside the manifest."""
    try:
        check_name(name)
    except ConfigError as error:
        raise LockError(error.what, where=where, wanted=error.wanted) from error
    if not _SHA256.fullmatch(sha256):
        wanted = "64 lowercase hex digits"
        raise LockError("the sha256 cannot be used", where=where, found=repr(sha256[:200]), wanted=wanted)
    folder = path.rpartition("/")[0]
    return Pair(f"input.{folder}/{name}.sha256" if folder else f"input.{name}.sha256", sha256, where)


def _plain_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"https", "http"} and bool(parts.hostname) and "@" not in parts.netloc


def _assignment(line: str, where: str, path: str) -> Pair:
    key, equals, value = line.partition("=")
    match = _KEY.fullmatch(key)
    if not equals or match is None:
        raise LockError("not a line of KEY=VALUE", where=where, found=repr(line[:200]), wanted="KEY=VALUE")
    value = value.strip()
    for quote in "'\"":
        if len(value) >= 2 and value[0] == value[-1] == quote:
            value = value[1:-1]
            break
    else:
        if value[:1] in {"'", '"'}:
            raise LockError("a quote that is not closed", where=where, found=repr(line[:200]))
    if any(mark in value for mark in ("$", "`")):  # it would be another value to a shell
        raise LockError("a value that only a shell could read", where=where, found=repr(value[:200]))
    name = path.rpartition("/")[2].lstrip(".").partition(".")[0] or "env"
    return Pair(f"{name}.{match['key']}", value.strip(), where)
