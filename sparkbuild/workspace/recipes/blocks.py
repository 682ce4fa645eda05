"""The [[staging]] blocks of a recipe held against the locks, the cluster and each other."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Iterable

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.secrets import without_login
from sparkbuild.workspace.locks.artifact import ARCHIVES, UNREADABLE, is_filename, url_filename, url_wanted
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.recipes.folders import check_folders
from sparkbuild.workspace.recipes.rows import check_rows
from sparkbuild.workspace.shapes.schema import Config, RecipeFile
from sparkbuild.workspace.shapes.stagingschema import ComposedExport, FilesStaging, HubStaging, Staging, TreeExport
from sparkbuild.workspace.toml.findings import Findings, Path

_ARCHIVE = "a .whl or .zip archive, or a plain file such as a .gguf"
_KERNELS = ("dev", "proc", "sys")  # nothing is mounted over or in these
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_blocks(
    spec: RecipeFile, findings: Findings, config: Config, locks: dict[str, SourceLock], problems: dict[str, ConfigError]
) -> None:
    """Note what is wrong with the blocks of a recipe. A `src` that is "" is one that could not be read."""
    cluster = config.clusters.get(spec.cluster)
    ranks = len(cluster.nodes) if cluster is not None else None
    check_folders(spec, findings.root, config, findings)
    for index, block in enumerate(spec.staging):
        here: Path = ("staging", index)
        if isinstance(block, FilesStaging):
            if block.src:
                _check_files(block, here, findings, locks, problems)
        elif isinstance(block, HubStaging):
            _check_mirror(block, index, spec, findings)
        else:
            check_rows(block, here, ranks, findings)
        missing = [rank for rank in block.only_ranks if ranks is not None and rank >= ranks]
        if missing and ranks is not None:
            findings.add(
                (*here, "only_ranks"),
                "there is no such rank",
                found=f"{', '.join(map(str, missing))}, and cluster {spec.cluster} has {_nodes(ranks)}",
                wanted=f"0 to {ranks - 1}" if ranks > 1 else "0",
                next_="take it out of `only_ranks`; without that key, every rank has the block",
            )


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _check_files(
    block: FilesStaging,
    here: Path,
    findings: Findings,
    locks: dict[str, SourceLock],
    problems: dict[str, ConfigError],
) -> None:
    is_folder, is_artifact = block.src.startswith("/"), block.src.startswith("artifact:")
    if is_artifact:
        _check_artifact(block, here, findings, locks, problems)
    elif not is_folder:
        _check_url(block, here, findings)
    if block.sha256 and (is_folder or is_artifact):
        what = "`sha256` is for a URL" + ("; an artifact has its own in the lock" if is_artifact else "")
        findings.add((*here, "sha256"), what, found=f"src = {_toml(block.src)}", next_="take `sha256` out")
    if not block.members:
        findings.add(
            (*here, "members"),
            "`members` is empty",
            found="members = []",
            wanted="at least one glob, or no `members`: without it, all is staged",
            next_="take `members` out",
        )
    if block.skip and not is_folder:
        findings.add(
            (*here, "skip"),
            "`skip` is for a folder",
            found=f"src = {_toml(block.src)}",
            wanted="members, for what is in an archive",
            next_='take `skip` out, and say in `members` what is wanted, as in members = ["*.gguf"]',
        )


def _check_url(block: FilesStaging, here: Path, findings: Findings) -> None:
    wrong = url_wanted(block.src)
    if wrong:
        findings.add(
            (*here, "src"),
            "a URL that cannot be used",
            found=without_login(block.src),
            wanted=wrong,
            next_="give one that needs no login, or put the file into a folder of the node and give that",
        )
        return
    filename = url_filename(block.src)
    if not block.sha256:
        findings.add(
            (*here, "src"),
            "a URL wants the sha256 of what it gives",
            found=block.src,
            wanted='sha256 = "...", 64 hex digits: what comes from the network is known before it is fetched',
            next_=_curl(block.src),
        )
    elif not block.sha256.strip("0"):
        findings.add(
            (*here, "sha256"),
            "the sha256 is a placeholder",
            found="64 zeros",
            wanted="the sha256 of what the URL gives",
            next_=_curl(block.src),
        )
    if not is_filename(filename):
        wanted = "the URL of one file, such as https://example.org/x.gguf"
        findings.add((*here, "src"), "a URL that names no file", found=block.src, wanted=wanted)
    elif filename.lower().endswith(UNREADABLE):
        findings.add((*here, "src"), "an archive that cannot be staged from", found=filename, wanted=_ARCHIVE)
    else:
        _check_members(block, filename, here, findings)


def _curl(url: str) -> str:
    return f"curl -fL {shlex.quote(url)} | sha256sum, where you trust the network"


def _check_members(block: FilesStaging, filename: str, here: Path, findings: Findings) -> None:
    """Of a plain file, all that `members` could match is its name. What is in an archive only the node can see."""
    if filename.lower().endswith(ARCHIVES):
        return
    for index, glob in enumerate(block.members):
        if not fnmatch.fnmatchcase(filename, glob):
            findings.add(
                (*here, "members", index),
                f"{_toml(glob)} does not match the one file that there is",
                found=filename,
                wanted="globs that match its name, or no `members`",
                next_="take `members` out",
            )


def _check_artifact(
    block: FilesStaging,
    here: Path,
    findings: Findings,
    locks: dict[str, SourceLock],
    problems: dict[str, ConfigError],
) -> None:
    keys: Path = (*here, "src")
    name, _, component = block.src.removeprefix("artifact:").partition("/")
    lock = locks.get(name)
    if lock is None:
        findings.reference(keys, name, "locks", locks, problems)
        return
    try:
        filename = lock.artifact(component).filename
    except ConfigError as error:
        findings.add_error(keys, error)
        return
    if filename.lower().endswith(UNREADABLE):  # said now, not when it has been downloaded
        what = f"`{component}` is of a kind that cannot be staged from"
        findings.add(keys, what, found=filename, wanted=_ARCHIVE)
    else:
        _check_members(block, filename, here, findings)


def _check_mirror(block: HubStaging, index: int, spec: RecipeFile, findings: Findings) -> None:
    blocks, here = spec.staging, ("staging", index)
    twice = sorted({repo for repo in block.repos if repo and block.repos.count(repo) > 1})
    if twice:
        wanted = "each repository once"
        findings.add((*here, "repos"), "a repository stands there twice", found=_listed(twice), wanted=wanted)
    if len(block.repos) > 1 and _COMMIT.fullmatch(block.revision):
        findings.add(
            (*here, "revision"),
            "one commit cannot be the revision of several repositories",
            found=f"{block.revision} for {_listed(block.repos)}",
            wanted="a block for each repository, each with its revision",
        )
    taken = {
        export.id: other.id for other in blocks[:index] if isinstance(other, HubStaging) for export in other.exports
    }
    for number, export in enumerate(block.exports):
        place: Path = (*here, "exports", number)
        if export.id in taken:
            findings.add(
                (*place, "id"),
                f"two exports have the id `{export.id}`",
                found=f"the other is of block `{taken[export.id]}`",
                wanted="an id of its own for each export of a recipe: templates name it",
            )
        taken[export.id] = block.id
        _check_export(export, place, block.repos, {other.id: other for other in blocks}, findings)
        _check_binds(export, place, spec, findings)


def _check_export(
    export: TreeExport | ComposedExport,
    place: Path,
    repos: tuple[str, ...],
    blocks: dict[str, Staging],
    findings: Findings,
) -> None:
    usable = [repo for repo in repos if repo]  # "" stands in place of one that is a mistake itself
    if not export.repo and len(repos) > 1 and usable:
        what, next_ = "`repo` says of which repository it is", f"add repo = {_toml(usable[0])}, or another of these"
        findings.add((*place, "repo"), what, found="no `repo`", wanted=_listed(usable), next_=next_)
    elif export.repo and usable == list(repos) != [] and export.repo not in repos:
        what = "a repository that the block does not have"
        findings.add((*place, "repo"), what, found=_toml(export.repo), wanted=_listed(repos))
    wrong = _wrong_target(export.target)
    if wrong:
        better = os.path.normpath(f"/{export.target.lstrip('./')}").replace("//", "/")
        findings.add(
            (*place, "target"),
            f"`target` {wrong}",
            found=_toml(export.target),
            wanted="where the container sees it: a normal absolute path, such as /model",
            next_=f"target = {_toml('/model' if _wrong_target(better) else better)}",
        )
    for name in export.over if isinstance(export, ComposedExport) else ():
        if name not in blocks or isinstance(blocks[name], HubStaging):
            fitting = sorted(one for one, block in blocks.items() if not isinstance(block, HubStaging))
            findings.add(
                (*place, "over"),
                f"`{name}` cannot be laid over a snapshot",
                found="a block of kind hub-mirror" if name in blocks else "no block has that id",
                wanted="the id of a block of this recipe of kind files or sparse-rows"
                + (f": {', '.join(fitting)}" if fitting else ""),
            )


def _wrong_target(target: str) -> str:
    """Why an export cannot be seen there, "" when it can."""
    if not target.startswith("/"):
        return "is no absolute path"
    if target == "/":
        return "is the root of the container"
    if not target.isprintable():
        return "has characters that cannot be shown"
    # a slash at the end is nobody's mistake
    if os.path.normpath(target) != (target.rstrip("/") or "/") or target.startswith("//"):
        return "is not written out: it has `.`, `..` or `//` in it"
    first = target.split("/")[1]
    return f"is in /{first}, which is the kernel's" if first in _KERNELS else ""


def _check_binds(export: TreeExport | ComposedExport, place: Path, spec: RecipeFile, findings: Findings) -> None:
    """Nothing is bound for a process: it would read the empty files."""
    if isinstance(export, TreeExport) and export.binds and spec.serve.runtime != "docker":
        findings.add(
            (*place, "binds"),
            f"export `{export.id}` binds files of the source, which only a container can have",
            found=f'runtime = "{spec.serve.runtime}"',
            wanted='runtime = "docker"',
            next_="stage these files too (take them out of `skip` and `binds`), or serve in docker",
        )


def _toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_toml, names))
