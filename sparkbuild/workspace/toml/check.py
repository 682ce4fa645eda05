"""Every mistake of a TOML file against its shape: unknown and misplaced keys, missing keys, values that do not fit.

The slow twin of msgspec.convert, which stops at the first mistake and knows no lines. Only runs when that has refused.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from sparkbuild.core.secrets import without_login
from sparkbuild.core.suggest import did_you_mean, nearest
from sparkbuild.workspace.shapes.fieldtypes import Table
from sparkbuild.workspace.toml.kinds import Kinds, Shapes
from sparkbuild.workspace.toml.mistakes import Mistake
from sparkbuild.workspace.toml.places import Level, Places, levels, name_of, within
from sparkbuild.workspace.toml.scan import Document, Path

_WORDS = {  # msgspec's words in a reader's
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "text",
}


def mistakes(data: Table, shape: type[msgspec.Struct] | types.UnionType, document: Document) -> list[Mistake]:
    """All mistakes of a read document; at least one when msgspec.convert refuses it."""
    check = _Check(shape, document)
    check.value(data, shape, ())
    return check.done()


class _Check:
    def __init__(self, shape: type[msgspec.Struct] | types.UnionType, document: Document) -> None:
        self.document = document
        self.levels: list[Level] = levels(shape)
        self.places = Places(self.levels, document)
        self.found: list[Mistake] = []
        self.missing: list[tuple[Path, str, Mistake]] = []
        self.moved: set[tuple[Path, str]] = set()  # (table, key) for which a misplaced key was found

    def done(self) -> list[Mistake]:
        # A key that only stands in the wrong table is one mistake, not also a missing one.
        return self.found + [mistake for table, key, mistake in self.missing if (table, key) not in self.moved]

    def add(self, path: Path, what: str, found: str = "", wanted: str = "", next_: str = "") -> None:
        self.found.append(Mistake(self.document.line(path), what, found, wanted, next_))

    def value(self, value: Any, kind: Any, path: Path) -> None:
        """Check one value against its annotation, going down as far as there is a shape."""
        bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        origin = get_origin(bare)
        if bare is Any:
            return
        if origin in (Union, types.UnionType):
            self._union(value, kind, [arg for arg in get_args(bare) if arg is not type(None)], path)
        elif isinstance(bare, type) and issubclass(bare, msgspec.Struct):
            self._struct(value, bare, path)
        elif origin is dict and isinstance(value, dict):
            self._map(value, kind, get_args(bare), path)
        elif origin is tuple and isinstance(value, list):
            before = len(self.found) + len(self.missing)
            for index, item in enumerate(value):
                self.value(item, get_args(bare)[0], (*path, index))
            if len(self.found) + len(self.missing) == before:
                self._leaf(value, kind, path)  # its length
        else:
            self._leaf(value, kind, path)

    def _union(self, value: Any, kind: Any, choices: list[Any], path: Path) -> None:
        if len(choices) == 1:
            self.value(value, choices[0], path)
            return
        structs = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, msgspec.Struct)]
        tags = {str(choice.__struct_config__.tag): choice for choice in structs}
        if not tags or not isinstance(value, dict):
            self._leaf(value, kind, path)
            return
        field = structs[0].__struct_config__.tag_field or "type"
        if field not in value:
            self._missing(path, field, f"{field} = " + " or ".join(f'"{tag}"' for tag in sorted(tags)))
        elif value[field] not in tags:
            tag = str(value[field])
            self.add((*path, field), f"`{field}` of {name_of(path)} is not known", repr(tag), did_you_mean(tag, tags))
            if nearest(tag, tags):  # as what it was meant to be, it may have more mistakes
                self._struct(value, tags[nearest(tag, tags)], path, tags)
        else:
            self._struct(value, tags[value[field]], path, tags)

    def _struct(self, value: Any, kind: type[msgspec.Struct], path: Path, kinds: Shapes | None = None) -> None:
        """`kinds`: all that the table may be, by tag."""
        if not isinstance(value, dict):
            double = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
            self.add(
                path,
                f"{name_of(path)} is a single table",
                "[[double brackets]]" if double else _shown(value),
                f"[{'.'.join(str(key) for key in path if isinstance(key, str))}], single brackets",
            )
            return
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        tag_field = kind.__struct_config__.tag_field
        for key, inner in value.items():
            if key in fields:
                self.value(inner, fields[key].type, (*path, key))
            elif key != tag_field:
                self._unknown(path, key, [*fields, *filter(None, [tag_field])], Kinds(kind, kinds or {}))
        for key, field in fields.items():
            if field.required and key not in value:
                self._missing(path, key, "")

    def _map(self, value: Table, kind: Any, kinds: tuple[Any, Any], path: Path) -> None:
        key_kind, value_kind = kinds
        for key, inner in value.items():
            level = self.places.swallowed(path, key)
            # A table of free names takes any key, so only here does the trap pass without an unknown key.
            if level is not None and (_is_text(value_kind) or not _fits(inner, value_kind)):
                self._trap(path, key, level)
                continue
            problem = _refusal(key, key_kind)
            if problem:
                self.add((*path, key), f"`{key}` cannot be a name in {name_of(path)}", "", problem)
            self.value(inner, value_kind, (*path, key))
        if not value:
            self._leaf(value, kind, path)

    def _leaf(self, value: Any, kind: Any, path: Path) -> None:
        problem = _refusal(value, kind)
        if not problem:
            return
        if isinstance(value, dict) and path and isinstance(path[-1], str) and problem.startswith("a list"):
            problem = f"[[{path[-1]}]], double brackets: there may be several"
        names = [key for key in path if isinstance(key, str)]
        what, above = f"`{path[-1]}`" if path else "the file", path[:-1]
        if names and not isinstance(path[-1], str):
            numbers = path[path.index(names[-1]) + 1 :]
            what, above = f"item {int(numbers[0]) + 1} of `{names[-1]}`", path[: -len(numbers) - 1]
        self.add(path, f"{what} does not fit{f' {within(above)}' if above else ''}", _shown(value), problem)

    def _missing(self, path: Path, key: str, wanted: str) -> None:
        text = wanted or f"{key} = ..."
        next_ = ""
        if not path and self.document.headers:
            header = self.document.headers[0]
            next_ = f"write it above line {header.line}, the first header {header.text}"
        found = self.places.elsewhere(path, key)
        mistake = Mistake(self.document.line(path), f"`{key}` is missing {within(path)}", found, text, next_)
        self.missing.append((path, key, mistake))

    def _unknown(self, path: Path, key: str, fields: list[str], kinds: Kinds) -> None:
        level = self.places.swallowed(path, key)
        if level is not None:
            self._trap(path, key, level)
            return
        if kinds.having(key):
            self._of_another_kind(path, key, kinds)
            return
        here = nearest(key, fields)
        homes = [home for home in self.levels if key in home.fields]
        wanted = [f"did you mean `{here}`?"] if here else []
        if homes:
            wanted.append(f"`{key}` belongs {' or '.join(home.place for home in homes)}")
        elif not here:
            # in all tables there is always something that is a little like it: no guess is better than `runs` for
            # `cgroupns`
            near = nearest(key, {name for home in self.levels for name in home.fields}, 0.8)
            places = " or ".join(home.place for home in self.levels if near in home.fields)
            if kinds.having(near):
                places = f"of kind {' or '.join(kinds.having(near))}"
            wanted.append(f"did you mean `{near}` {places}?" if near else f"one of: {', '.join(sorted(fields))}")
        next_ = ""
        if len(homes) == 1 and not here:
            self.moved.add((homes[0].path, key))
            header = next((header for header in self.document.headers if header.path == homes[0].path), None)
            next_ = f"move `{key}` to just below {header.text} on line {header.line}" if header else ""
        self.add((*path, key), f"unknown key `{key}` {within(path)}", "", "\n".join(wanted), next_)

    def _of_another_kind(self, path: Path, key: str, kinds: Kinds) -> None:
        others, tag = kinds.having(key), f'{kinds.field} = "{kinds.tag}"'
        what = f"this {name_of(path)}" if path else "this file"
        self.add(
            (*path, key),
            f"`{key}` is a key of kind {' or '.join(others)}, and {what} is of kind {kinds.tag}",
            f"{tag} on line {self.document.line((*path, kinds.field))}",
            f"keys of kind {kinds.tag}: {', '.join(sorted(kinds.keys))}",
            f"take `{key}` out, or write " + " or ".join(f'{kinds.field} = "{other}"' for other in others),
        )

    def _trap(self, path: Path, key: str, level: Level) -> None:
        self.moved.add((_above(path, len(level.path)), key))
        place: Path = (*path, key)
        found, next_ = self.places.swallowing(key, self.document.spots[place], level)
        self.add(place, f"`{key}` stands in the wrong table", found, f"`{key}` {level.place}", next_)


def _above(path: Path, depth: int) -> Path:
    """The table around a place that has so many names, with its number where it is one of several."""
    found: list[str | int] = []
    for part in path:
        if isinstance(part, str):
            if depth == 0:
                break
            depth -= 1
        found.append(part)
    return tuple(found)


def _is_text(kind: Any) -> bool:
    """Whether it takes text, whatever the text must be like."""
    return kind is str or (get_origin(kind) is Annotated and get_args(kind)[0] is str)


def _fits(value: Any, kind: Any) -> bool:
    return not _refusal(value, kind)


def _refusal(value: Any, kind: Any) -> str:
    """What is wanted instead of this value, or ""."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Literal:
            choices = [str(choice) for choice in get_args(kind)]
            return did_you_mean(str(value), choices) if len(choices) > 1 else repr(choices[0])
        described = _description(kind)
        if described:
            return described
        text = str(error).partition(" - at `")[0].removeprefix("Expected ").partition(", got ")[0].replace("`", "")
        first, space, rest = text.partition(" ")
        return _WORDS.get(first, first) + space + rest
    return ""


def _description(kind: Any) -> str:
    """What the annotation of a field says of it in words, "" when that is nothing."""
    metas = kind.__metadata__ if get_origin(kind) is Annotated else ()
    return next((meta.description for meta in metas if getattr(meta, "description", None)), "")


def _shown(value: Any) -> str:
    """A value and what it is; long lists, and tables, only as such."""
    if isinstance(value, (list, dict)):
        what = ("a " if value else "an empty ") + ("list" if isinstance(value, list) else "table")
        text = msgspec.json.encode(value).decode() if isinstance(value, list) else ""
        return f"{text} ({what})" if value and 0 < len(text) <= 80 else what
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(without_login(value) if isinstance(value, str) else value)
    return (
        f"{text if len(text) <= 80 else text[:77] + '...'} ({_WORDS.get(type(value).__name__, type(value).__name__)})"
    )
