"""Cross-checks of one file: what does not fit the rest of the workspace, collected and put on its line."""

from __future__ import annotations

from collections.abc import Iterable

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Input
from sparkbuild.core.suggest import did_you_mean
from sparkbuild.workspace.files.inputs import files_below, read_input
from sparkbuild.workspace.toml import tomlfile
from sparkbuild.workspace.toml.mistakes import Mistake, as_error
from sparkbuild.workspace.toml.salvage import is_lost

Path = tuple[str | int, ...]  # from the top of the file: ("staging", 0, "src")


class Findings:
    """Mistakes of the TOML file `path` (relative to `root`), each at a key. Reads the file only for a mistake."""

    def __init__(
        self, root: str, path: str, known: Iterable[Mistake] = (), lost: frozenset[Path] = frozenset()
    ) -> None:
        """Start with those that are known already. What is `lost`, see `tomlfile.read_through`, has no others."""
        self.root = root
        self.path = path
        self._mistakes: list[Mistake] = [*known]
        self._broken: dict[str, tuple[str, ConfigError]] = {}  # what has a problem of its own: (words, that problem)
        self._lost = lost

    def line(self, *keys: str | int) -> int:
        """The line of a key."""
        return tomlfile.line_of(f"{self.root}/{self.path}", self.root, *keys)

    def add(self, keys: Path, what: str, *, found: str = "", wanted: str = "", next_: str = "") -> None:
        """Note a mistake at a key."""
        if self._lost and is_lost(keys, self._lost):
            return
        self._mistakes.append(Mistake(self.line(*keys), what, found, wanted, next_))

    def add_error(self, keys: Path, error: ConfigError) -> None:
        """Note another error as a mistake at a key; where it happened becomes part of what was found."""
        found = ": ".join(part for part in (error.where, error.found) if part)
        self.add(keys, error.what, found=found, wanted=error.wanted, next_=error.next)

    def reference(
        self, keys: Path, name: str, kind: str, known: Iterable[str], problems: dict[str, ConfigError]
    ) -> None:
        """Note that `name` is not among the `known` ones of a kind ("images"): it is broken, or there is none."""
        one = kind.removesuffix("s")
        broken = problems.get(f"{kind}/{name}")
        if broken is not None:
            self._broken[f"{kind}/{name}"] = (f"the {one} `{name}` it uses has a problem of its own", broken)
        else:
            hint = did_you_mean(name, known) or f"a name of {kind}/; the workspace has none yet"
            self.add(keys, f"there is no {one} `{name}`", wanted=hint)

    def unique(self, table: str, ids: list[str]) -> None:
        """Note every id that stands twice among the [[table]] blocks."""
        first: dict[str, int] = {}
        for index, name in enumerate(ids):
            if name in first:
                self.add(
                    (table, index, "id"),
                    f"two [[{table}]] blocks have the id `{name}`",
                    found=f"the first on line {self.line(table, first[name], 'id')}",
                    wanted="an id of its own for each block",
                )
            first.setdefault(name, index)

    def inputs(self, folder: str, files: Iterable[str]) -> tuple[Input, ...]:
        """The `files` of the TOML file, read from its folder; of a folder, all files in it. Each that cannot be an
        input is noted.
        """
        found: dict[str, Input] = {}
        for index, entry in enumerate(files):
            try:
                for file in files_below(self.root, folder, entry):
                    found.setdefault(file, read_input(self.root, folder, file))
            except ConfigError as error:
                self.add_error(("files", index), error)
        return tuple(found.values())

    def error(self) -> ConfigError | None:
        """All of them as one error, or None. What is wrong in another file comes first, in that file's own words, and
        once: it is no mistake of this one.
        """
        if not self._broken:
            return as_error(self.path, self._mistakes) if self._mistakes else None
        roots: dict[str, ConfigError] = {}
        for _, error in self._broken.values():
            root = error.root or error
            roots.setdefault(f"{root.where} {root.what}", root)
        first, *others = roots.values()
        follows = [f"so {self.path} cannot be used: {words}" for words, _ in self._broken.values()]
        own = [str(as_error(self.path, self._mistakes))] if self._mistakes else []
        mend = f"mend {' and '.join(self._broken)} first"
        failure = type(first)(
            first.what,
            where=first.where,
            found="\n".join(filter(None, (first.found, *map(str, others), *follows, *own))),
            wanted=first.wanted,
            next=f"{mend}: {first.next}" if first.next else mend,
        )
        failure.root = first
        return failure
