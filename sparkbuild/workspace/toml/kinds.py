"""Tables that are of one kind or another, by a key such as `kind`: which keys belong to which kind."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Shapes = Mapping[str, type[msgspec.Struct]]  # by tag


class Kinds:
    """What a table is, among all that it may be by its tag (`kind = "files"`): nothing for a table without one."""

    def __init__(self, own: type[msgspec.Struct], kinds: Shapes) -> None:
        """`own` is one of the `kinds`, or all there is."""
        self.field, self.tag = own.__struct_config__.tag_field or "", str(own.__struct_config__.tag)
        self.keys = _keys(own)
        self._others = {tag: _keys(kind) for tag, kind in kinds.items() if kind is not own}

    def having(self, key: str) -> list[str]:
        """The other kinds that have a key, when this one has it not."""
        return sorted(tag for tag, keys in self._others.items() if key in keys and key not in self.keys)


def _keys(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}
