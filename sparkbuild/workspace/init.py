"""Writing a new workspace: the few files an operator starts from, in a folder of his own."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from importlib import resources
from pathlib import Path

import msgspec

from sparkbuild.core.errors import ConfigError

# Where each file of template/ goes. dodo.py is last: a folder without it is not yet a workspace.
FILES = {
    "config.toml": "config.toml",
    "images/example/image.toml.example": "image.toml",
    "images/example/requirements.lock": "requirements.txt",
    "images/example-docker/image.toml.example": "docker-image.toml",
    "images/example-dockerfile/image.toml.example": "dockerfile-image.toml",
    "images/example-dockerfile/Dockerfile.j2": "dockerfile.txt",
    "recipes/example/recipe.toml.example": "recipe.toml",
    "locks/example.source.lock.example": "source.lock",
    ".gitignore": "gitignore.txt",
    "dodo.py": "dodo.txt",
}


class Written(msgspec.Struct, frozen=True):
    """What `init` did. `ignored` are the lines it added to a .gitignore that was there already."""

    root: Path
    files: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def init(target: Path | str) -> Written:
    """Write a workspace into `target`, which may exist, for example as a git repository.

    Nothing that exists is overwritten; to a .gitignore that exists the missing lines are added. The folder appears
    whole or, when something goes wrong or it is interrupted, not at all.

    Raises ConfigError when something is in the way (nothing is written then) or the folder cannot be written.
    """
    root = Path(os.path.abspath(target))
    contents = {name: template(source) for name, source in FILES.items()}
    ignored: tuple[str, ...] = ()
    try:
        if root.is_dir():
            ignored = _unignored(root, contents)
            _refuse_what_is_in_the_way(root, contents)
            _fill(root, contents, ignored)
        elif os.path.lexists(root):
            raise ConfigError(
                f"{root} is in the way", found="a file", wanted="a folder, or nothing", next="move it away"
            )
        else:
            _create(root, contents)
    except OSError as error:
        raise ConfigError(
            "the workspace cannot be written", where=str(error.filename or root), found=error.strerror or str(error)
        ) from error
    return Written(root, tuple(contents), ignored)


def template(name: str) -> str:
    """The text of a file of the package's template folder."""
    return (resources.files("sparkbuild.workspace") / "template" / name).read_text(encoding="utf-8")


def _refuse_what_is_in_the_way(root: Path, contents: dict[str, str]) -> None:
    blocked = []
    for name in contents:
        parents = [str(parent) for parent in reversed(Path(name).parents) if str(parent) != "."]
        files = [parent for parent in parents if os.path.lexists(root / parent) and not (root / parent).is_dir()]
        if files or os.path.lexists(root / name):
            blocked.append(files[0] if files else name)
    if blocked:
        raise ConfigError(
            f"{root} has files that a new workspace would overwrite; nothing was written",
            where=str(root),
            found="\n".join(dict.fromkeys(blocked)),
            next="choose another folder, or move these away",
        )


def _unignored(root: Path, contents: dict[str, str]) -> tuple[str, ...]:
    """The lines that the .gitignore in `root` lacks; takes it off the list of files to write when there is one."""
    path = root / ".gitignore"
    if not path.is_file():
        return ()
    wanted = contents.pop(".gitignore").splitlines()
    have = {line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()}
    return tuple(line for line in wanted if line not in have)


def _ignore(root: Path, lines: tuple[str, ...]) -> None:
    if lines:
        path = root / ".gitignore"
        old = path.read_bytes()
        gap = b"" if not old or old.endswith(b"\n") else b"\n"
        with path.open("ab") as file:
            file.write(gap + "".join(f"{line}\n" for line in lines).encode())


def _create(root: Path, contents: dict[str, str]) -> None:
    """Make a folder that is not there: written beside it, then renamed."""
    root.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{root.name}.", dir=root.parent))
    try:
        _write(draft, contents)
        draft.chmod(0o777 & ~_umask())  # mkdtemp makes it for the owner alone
        draft.rename(root)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _fill(root: Path, contents: dict[str, str], ignored: tuple[str, ...]) -> None:
    """Put the files into a folder that is there: written inside it, then moved to their places, or all taken back."""
    draft = Path(tempfile.mkdtemp(prefix=".sparkbuild-init.", dir=root))
    made: list[Path] = []  # noted before they are made: an interrupt may come in between
    try:
        _write(draft, contents)
        for name in contents:
            for parent in reversed(Path(name).parents):
                if not (root / parent).exists():
                    made.append(root / parent)
                    (root / parent).mkdir()
            free = _free(root / name)
            made.append(free)
            (draft / name).rename(free)
        _ignore(root, ignored)
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _free(path: Path) -> Path:
    if os.path.lexists(path):
        raise FileExistsError(17, "it appeared just now", str(path))
    return path


def _write(folder: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
