"""What can be read of a TOML file with mistakes, so that the rest can be checked too. Only runs when it has some."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from sparkbuild.core.suggest import nearest

if TYPE_CHECKING:
    from sparkbuild.workspace.shapes.fieldtypes import Table
    from sparkbuild.workspace.toml.scan import Path

T = TypeVar("T", bound=msgspec.Struct)


def salvage(data: Table, shape: type[T]) -> tuple[T, frozenset[Path]]:
    """A read document as its shape, and the places at which it says nothing that counts.

    What is missing there or does not fit is its default, or empty ("", 0, (), {}): no pattern or limit of the shape
    holds for it, and what a check finds there is no news. Unknown keys are left out. Tables keep their numbers.
    """
    salvager = _Salvager()
    return salvager.struct(data, shape, ()), frozenset(salvager.lost)


def is_lost(path: Path, lost: frozenset[Path]) -> bool:
    """Whether a place is one of those that say nothing that counts, or in one, or around one."""
    return any(path[: len(one)] == one or one[: len(path)] == path for one in lost)


class _Salvager:
    def __init__(self) -> None:
        self.lost: list[Path] = []

    def value(self, value: Any, kind: Any, path: Path) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            bare = _bare(kind)
        structs = _structs(bare)
        if structs and isinstance(value, dict):
            return self.struct(value, self._chosen(value, structs, path), path)
        args = get_args(bare)
        if get_origin(bare) is tuple and isinstance(value, list) and args[-1] is Ellipsis:
            return tuple(self.value(item, args[0], (*path, index)) for index, item in enumerate(value))
        if get_origin(bare) is dict and isinstance(value, dict):
            return {str(key): self.value(item, args[1], (*path, key)) for key, item in value.items()}
        self.lost.append(path)
        return _empty(kind)

    def struct(self, value: Table, kind: type[T], path: Path) -> T:
        found: Table = {}
        for field in msgspec.structs.fields(kind):
            place = (*path, field.encode_name)
            if field.encode_name in value:
                before = len(self.lost)
                found[field.name] = self.value(value[field.encode_name], field.type, place)
                if place in self.lost[before:] and not field.required:
                    del found[field.name]  # its default is a better guess
            elif field.required:
                self.lost.append(place)
                found[field.name] = _empty(field.type)
        return kind(**found)

    def _chosen(self, value: Table, structs: list[Any], path: Path) -> Any:
        """The struct that a table is, by its tag; the first of them, and nothing of it counts, when nobody can say."""
        if len(structs) == 1:
            return structs[0]
        kinds = {str(one.__struct_config__.tag): one for one in structs}
        tag = str(value.get(structs[0].__struct_config__.tag_field or "type", ""))
        tag = tag if tag in kinds else nearest(tag, kinds)
        if not tag:
            self.lost.append(path)
        return kinds.get(tag, structs[0])


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _structs(bare: Any) -> list[Any]:
    choices = get_args(bare) if get_origin(bare) in (Union, types.UnionType) else (bare,)
    return [one for one in choices if isinstance(one, type) and issubclass(one, msgspec.Struct)]


def _empty(kind: Any) -> Any:
    """A value of a kind that says nothing."""
    bare = _bare(kind)
    structs = _structs(bare)
    if structs:
        return _Salvager().struct({}, structs[0], ())
    origin = get_origin(bare)
    if origin in (Union, types.UnionType):
        return None if type(None) in get_args(bare) else _empty(get_args(bare)[0])
    if origin is Literal:
        return get_args(bare)[0]
    if origin in (tuple, dict):
        return origin()
    return bare() if isinstance(bare, type) else None
