"""The shapes of [[staging]] blocks in a recipe.toml, by kind."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sparkbuild.workspace.shapes.fieldtypes import Name, Text


class _Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every [[staging]] block may say. `dst` is a folder on the node, by default inside its store. `verify`: how
    much of what is found there, and was staged by other means, is compared before it is believed. `min_free` bytes
    stay free on the folder's file system; `bwlimit` bytes per second are read at most, 0: as fast as it goes.
    `only_ranks`: the ranks that need the block, by default all.
    """

    id: Name
    dst: str = ""
    verify: Literal["quick", "full"] = "quick"
    min_free: Annotated[int, Meta(ge=0)] = 0
    bwlimit: Annotated[int, Meta(ge=0)] = 0
    only_ranks: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class FilesStaging(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="files"):
    """Kind `files`: plain files. `src` is `artifact:<lock>/<component>`, a URL with its `sha256`, or a folder of the
    node ("/srv/models/x").

    An artifact or URL named .whl or .zip is an archive: `members` are glob patterns over the names inside it, and a
    matching file lands in the staged folder under its base name; any other is one plain file, whose name `members`
    must match. Of a folder, `members` and `skip` are globs over the paths in it, which stay as they are.
    """

    src: Annotated[
        str,
        Meta(
            pattern=r"^(artifact:[^/\s]+/[^/\s]+|https?://\S+|/.*)\Z",
            description='an artifact of a lock ("artifact:demo/smollm2"), a URL ("https://example.org/x.gguf"), or a '
            'folder of the node, by its absolute path ("/srv/models/x"); of the hub, kind = "hub-mirror" '
            'with repos = ["org/name"] and the folder of the hub cache as `src`',
        ),
    ]
    sha256: Annotated[
        str, Meta(pattern=r"^([0-9a-f]{64})?\Z", description="64 hex digits in lower case, as sha256sum prints them")
    ] = ""
    members: tuple[str, ...] = ("*",)
    skip: tuple[str, ...] = ()


class TreeExport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tree", tag_field="kind"):
    """[[staging.exports]]: a snapshot as a folder of regular files, hard links of the mirror, seen at `target` in the
    container. `subtree` is the part of the snapshot; files that match `binds` are not staged but bound from the source,
    each onto an empty file.
    """

    id: Name
    target: Text
    repo: str = ""
    subtree: str = ""
    path: str = ""
    binds: tuple[str, ...] = ()


class ComposedExport(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="composed", tag_field="kind"
):
    """[[staging.exports]]: a model folder put together: the files of a snapshot as links, and over them, as hard links,
    the files of the blocks `over`. Seen at `target` in the container.
    """

    id: Name
    target: Text
    over: Annotated[tuple[Name, ...], Meta(min_length=1)]
    repo: str = ""
    path: str = ""


Repo = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?\Z",
        max_length=192,
        description='a repository as the hub names it, such as "org/model"',
    ),
]
Folder = Annotated[
    str, Meta(pattern=r"^/", description='a folder of the node, by its absolute path, such as "/srv/models/hub"')
]
Ranges = tuple[tuple[int, int], ...]
Split = Annotated[
    Literal["even", "heads"] | Ranges | dict[str, Ranges],
    Meta(
        description='"even", "heads", the first row and the end for each rank, as in [[0, 100], [100, 250]], or that '
        "for each layer, as in { 1 = [[0, 100], [100, 250]] }"
    ),
]


class HubStaging(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hub-mirror"):
    """Kind `hub-mirror`: the wanted `revision` (a commit of 40 hex digits, or a ref, as it is when it is staged) of
    `repos` out of the Hugging Face hub cache `src`, as a hub cache in `dst`. `skip`: globs over the paths of a
    snapshot.
    """

    src: Folder
    repos: Annotated[tuple[Repo, ...], Meta(min_length=1)]
    revision: Text = "main"
    skip: tuple[str, ...] = ()
    exports: tuple[TreeExport | ComposedExport, ...] = ()


class RowsStaging(_Block, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sparse-rows"):
    """Kind `sparse-rows`: a rank's rows of the Engram tables of a checkpoint. `src` is a model folder, or, with one of
    `repos`, a hub cache; `revision`, which is of that one, is `main` by default.

    `layout`: `packed` or `page15`, one file per layer; `sparse-copy`, the shards with holes. `split` says which rows a
    rank has: `even`, `heads`, or [[lo, hi], ...], one for each rank; for tables of different lengths such a list for
    each layer. `layers`: those of the tables, by default all of the config. `complete_shard`: a sparse copy has the
    shard's other tensors too.
    """

    src: Folder
    repos: Annotated[tuple[Repo, ...], Meta(max_length=1)] = ()
    revision: Text = ""
    layout: Literal["packed", "page15", "sparse-copy"] = "packed"
    split: Split = "even"
    layers: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    complete_shard: bool = False


Staging = FilesStaging | HubStaging | RowsStaging
