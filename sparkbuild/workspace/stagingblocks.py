"""The [[staging]] blocks of a recipe held against the locks, the cluster and each other."""

from __future__ import annotations

import re

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.findings import Findings, Path
from sparkbuild.workspace.schema import Config, RecipeFile
from sparkbuild.workspace.sourcelock import SourceLock
from sparkbuild.workspace.stagingschema import (
    ComposedExport,
    FilesStaging,
    HubStaging,
    Ranges,
    RowsStaging,
    Staging,
    TreeExport,
)

# Archives that are not read; the agent's own list (agent.members) is this one.
UNREADABLE = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_ARCHIVE = "a .whl or .zip archive, or a plain file such as a .gguf"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_blocks(
    spec: RecipeFile, findings: Findings, config: Config, locks: dict[str, SourceLock], problems: dict[str, ConfigError]
) -> None:
    """Note what is wrong with the blocks of a recipe."""
    cluster = config.clusters.get(spec.cluster)
    ranks = len(cluster.nodes) if cluster is not None else None
    for index, block in enumerate(spec.staging):
        here: Path = ("staging", index)
        if isinstance(block, FilesStaging):
            _check_files(block, here, findings, locks, problems)
        elif isinstance(block, HubStaging):
            _check_mirror(block, here, spec.staging, findings)
        else:
            _check_rows(block, here, ranks, findings)
        if ranks is not None:
            for rank in block.only_ranks:
                if rank >= ranks:
                    found = f"{rank}, and cluster {spec.cluster} has {ranks} nodes"
                    findings.add(
                        (*here, "only_ranks"), "there is no such rank", found=found, wanted=f"0 to {ranks - 1}"
                    )
                    break


def _check_files(
    block: FilesStaging,
    here: Path,
    findings: Findings,
    locks: dict[str, SourceLock],
    problems: dict[str, ConfigError],
) -> None:
    if block.src.startswith("artifact:"):
        _check_artifact(block, (*here, "src"), findings, locks, problems)
    elif not block.src.startswith("/"):
        filename = block.src.partition("?")[0].rpartition("/")[2]
        if not block.sha256:
            wanted = 'sha256 = "...", 64 hex digits: what comes from the network is known before it is fetched'
            findings.add((*here, "src"), "a URL wants the sha256 of what it gives", wanted=wanted)
        if not filename:
            findings.add((*here, "src"), "a URL that names no file", found=block.src)
        elif filename.lower().endswith(UNREADABLE):
            findings.add((*here, "src"), "an archive that cannot be staged from", found=filename, wanted=_ARCHIVE)
    if block.sha256 and not block.src.startswith("http"):
        what = "`sha256` is for a URL" + ("; an artifact has its own in the lock" if block.src[0] != "/" else "")
        findings.add((*here, "sha256"), what)
    if block.skip and not block.src.startswith("/"):
        findings.add((*here, "skip"), "`skip` is for a folder", wanted="members, for what is in an archive")


def _check_artifact(
    block: FilesStaging,
    keys: Path,
    findings: Findings,
    locks: dict[str, SourceLock],
    problems: dict[str, ConfigError],
) -> None:
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


def _check_mirror(block: HubStaging, here: Path, blocks: tuple[Staging, ...], findings: Findings) -> None:
    twice = sorted({repo for repo in block.repos if block.repos.count(repo) > 1})
    if twice:
        findings.add((*here, "repos"), "a repository stands there twice", found=", ".join(twice))
    if len(block.repos) > 1 and _COMMIT.fullmatch(block.revision):
        what = "one commit cannot be the revision of several repositories"
        findings.add((*here, "revision"), what, wanted="a block for each repository, each with its revision")
    before = [other for other in blocks[: blocks.index(block)] if isinstance(other, HubStaging)]
    taken = [export.id for other in before for export in other.exports]
    for number, export in enumerate(block.exports):
        place: Path = (*here, "exports", number)
        if export.id in taken:
            findings.add((*place, "id"), f"two exports have the id `{export.id}`")
        taken.append(export.id)
        _check_export(export, place, block.repos, {other.id: other for other in blocks}, findings)


def _check_export(
    export: TreeExport | ComposedExport,
    place: Path,
    repos: tuple[str, ...],
    blocks: dict[str, Staging],
    findings: Findings,
) -> None:
    if not export.repo and len(repos) > 1:
        findings.add((*place, "repo"), "`repo` says of which repository it is", wanted=", ".join(repos))
    elif export.repo and export.repo not in repos:
        what = "a repository that the block does not have"
        findings.add((*place, "repo"), what, found=export.repo, wanted=", ".join(repos))
    if not export.target.startswith("/"):
        findings.add((*place, "target"), "`target` is no absolute path", found=export.target, wanted="/model")
    for name in export.over if isinstance(export, ComposedExport) else ():
        if name not in blocks or isinstance(blocks[name], HubStaging):
            wanted = "the id of a block of this recipe of kind files or sparse-rows"
            findings.add((*place, "over"), f"`{name}` cannot be laid over a snapshot", wanted=wanted)


def _check_rows(block: RowsStaging, here: Path, ranks: int | None, findings: Findings) -> None:
    if block.complete_shard and block.layout != "sparse-copy":
        what = "`complete_shard` is for the layout sparse-copy"
        findings.add((*here, "complete_shard"), what, found=f'layout = "{block.layout}"')
    if isinstance(block.split, dict):
        for layer, ranges in block.split.items():
            _check_ranges(ranges, (*here, "split", layer), ranks, findings)
    elif not isinstance(block.split, str):
        _check_ranges(block.split, (*here, "split"), ranks, findings)


def _check_ranges(ranges: Ranges, keys: Path, ranks: int | None, findings: Findings) -> None:
    if ranks is not None and len(ranges) != ranks:
        found, wanted = f"{len(ranges)} ranges", f"{ranks}, one for each rank of the cluster"
        findings.add(keys, "the split does not fit the cluster", found=found, wanted=wanted)
    end = 0
    for rank, (low, high) in enumerate(ranges):
        if low != end or high < low:
            what = "the ranges do not follow each other without a gap"
            findings.add(keys, what, found=f"[{low}, {high}) of rank {rank}", wanted=f"[{end}, ...)")
            return
        end = high
