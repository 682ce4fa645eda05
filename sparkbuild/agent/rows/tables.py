"""The lookup tables of a model folder: in which file each lies, and where in it. Headers are read, tables are not.

A table is two tensors of one file, `layers.<L>.engram.embed.weight` (F8_E4M3, [N, 256]) and `.scale` (F8_E8M0,
[N, 8]), whatever stands in front of these names. Where they lie differs between checkpoints of one model, so it is
always asked of the header.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import closing
from typing import NamedTuple

from sparkbuild.agent.disk import nas
from sparkbuild.agent.ledger.ledger import safe_name
from sparkbuild.agent.rows import rowsplit
from sparkbuild.agent.source import safetensors, shards, whole
from sparkbuild.agent.source.safetensors import Header, Tensor
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.source.sparsecopy import OF_TABLE
from sparkbuild.agent.source.versions import Version
from sparkbuild.agent.wire.protocol import AgentError, config_error, integrity_error

INDEX, CONFIG = "model.safetensors.index.json", "config.json"
WEIGHT_BYTES, SCALE_BYTES = 256, 8  # of one row

_BLOCK = 1 << 20
_CARRY = 16 << 10  # bytes; a name and its file are shorter
_INDEX_LIMIT = 64 << 20  # bytes that are parsed to see whether it is JSON; one of 100,000 tensors has 9 MB
_CONFIG_LIMIT = 1 << 20  # bytes; a real one has some thousand
_SRC = "correct `src` of this staging block: a checkpoint with Engram tables, such as DeepSeek V4.1"
_PARTS = {"weight": ("F8_E4M3", WEIGHT_BYTES), "scale": ("F8_E8M0", SCALE_BYTES)}
# Names are JSON: json.dumps writes what is not ASCII as \\u00e9.
_ENTRY = (
    rb'("(?:[^"\\]*(?:\\.[^"\\]*)*\.)?layers\.\d+\.engram\.embed\.(?:weight|scale)")'
    rb'\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")'
)


class Shard(NamedTuple):
    """A file with a table in it. `link` is the text of its link ("" for a file of its own), `blob` the name of what it
    links to in a hub cache, which says its content; `size` in bytes. `version`: see versions.
    """

    name: str
    path: str
    link: str
    blob: str
    size: int
    header: Header
    version: Version


class Table(NamedTuple):
    """Row r is at `weight.start + 256 * r` and `scale.start + 8 * r` of the shard."""

    layer: int
    shard: Shard
    weight: Tensor
    scale: Tensor

    @property
    def rows(self) -> int:
        """Of the whole table."""
        return self.weight.shape[0]


class Model:
    """A folder with a checkpoint, most often a snapshot of a hub cache. Raises AgentError when there is none.

    `config` is {} and a sha256 is "" when that file is not there.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._names = set(nas.names(folder))
        if not self._names and not nas.is_folder(folder):
            raise nas.not_there("the folder of the model is not there", folder)
        if not self._names:
            what, wanted = "there is no model in that folder", "config.json and *.safetensors"
            raise config_error(what, where=folder, found="nothing", wanted=wanted, next=_SRC)
        self.config, self.config_sha256 = self._read_config()
        self.index_sha256 = ""
        self._shards: dict[str, Shard] = {}
        self._weight_map: dict[str, str] = {}
        if INDEX in self._names:
            self._weight_map, self.index_sha256 = _weight_map(self.path(INDEX))

    def path(self, name: str) -> str:
        """Of one of its files."""
        return f"{self.folder}/{name}"

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return name in self._names

    def table(self, layer: int) -> Table:
        """The table of a layer. Raises AgentError, kind config, when there is not exactly one of the right shape."""
        files = self._of_layer(layer)
        weights = [name for name in files if name.endswith(".weight")]
        scales = [name for name in files if name.endswith(".scale")]
        if len(weights) != 1 or len(scales) != 1:
            self._refuse_broken_index()
            raise self._not_one(layer, sorted(files))
        weight, scale = weights[0], scales[0]
        if weight.removesuffix(".weight") != scale.removesuffix(".scale") or files[weight] != files[scale]:
            raise config_error(
                f"weights and scales of layer {layer} are not in one file",
                where=self.folder,
                found=f"{weight} in {files[weight]}, {scale} in {files[scale]}",
                wanted="both in the same file: every runtime reads them from one",
                next="give a checkpoint that has them so as `src`: its publisher's own, or a repack of it",
            )
        shard = self._shard(files[weight])
        table = Table(layer, shard, self._tensor(shard, weight), self._tensor(shard, scale))
        if table.scale.shape[0] != table.rows:
            text = f"{table.rows} rows of weights, {table.scale.shape[0]} of scales"
            raise _broken(f"the table of layer {layer} is torn", shard.path, text, "as many rows of both")
        return table

    def _not_one(self, layer: int, names: list[str]) -> AgentError:
        others = [other for other in self.layers() if other != layer]
        elsewhere = f", but of layer {', '.join(map(str, others))}" if others else ""
        what, next_ = f"the model has not exactly one lookup table for layer {layer}", _SRC
        if layer in rowsplit.layers_of(rowsplit.engram(self.config)) and len(names) < len(_PARTS):
            # The model has one, so nobody is to leave that layer out.
            if self.index_sha256:
                what, next_ = f"{INDEX} lacks the lookup table of layer {layer}", f"the index is broken: {shards.AGAIN}"
            else:
                next_ = "is a shard missing? Compare the folder with what it was downloaded or copied from"
        elif others and not names:
            next_ = f"write layers = {others} in the staging block, or correct its `src`"
        return config_error(
            what,
            where=self.path(INDEX) if self.index_sha256 else self.folder,
            found=", ".join(names) or "nothing of that name" + elsewhere,
            wanted=f"layers.{layer}.engram.embed.weight and .scale",
            next=next_,
        )

    def layers(self) -> list[int]:
        """The layers that have something of a lookup table."""
        names = map(OF_TABLE.fullmatch, self._tensors())
        layers = sorted({int(match[1]) for match in names if match})
        if not layers:
            self._refuse_broken_index()
        return layers

    def _refuse_broken_index(self) -> None:
        """An index that lacks something may be a broken one. Only then it is parsed, and its map is not kept."""
        path = self.path(INDEX)
        data = nas.small(path, _INDEX_LIMIT) if self.index_sha256 else None
        if data is None:
            return
        odd: list[str] = []

        def types(pairs: list[tuple[str, object]]) -> dict[str, type]:
            tables = [(key, value) for key, value in pairs if OF_TABLE.fullmatch(key)]
            odd.extend(f"{key}: {_json(value)}" for key, value in tables if self._weight_map.get(key, "") != value)
            return {key: type(value) for key, value in pairs[:99]}

        try:
            index = json.loads(data, object_pairs_hook=types)
        except (ValueError, RecursionError) as error:
            text = f"{error}; {len(data)} bytes in all"
            raise _broken(f"{INDEX} is no JSON", path, text, "a JSON object") from error
        if not isinstance(index, dict) or index.get("weight_map") is not dict:
            text = f"the keys {', '.join(map(repr, index))}" if isinstance(index, dict) and index else "nothing in it"
            raise _broken(f"{INDEX} has no weight_map", path, text[:200], '{"weight_map": {tensor: file}}')
        if odd:
            what = f"{INDEX} names no file for a lookup table"
            raise _broken(what, path, odd[0], "the name of a file, in plain letters")

    def _tensors(self) -> dict[str, str]:
        """The file of each tensor; with an index, of those of tables only."""
        return self._weight_map if self.index_sha256 else self._scan()

    def _of_layer(self, layer: int) -> dict[str, str]:
        """The names of the tensors of a layer's table, and the file of each."""
        tensors = ((OF_TABLE.fullmatch(name), name, file) for name, file in self._tensors().items())
        return {name: file for match, name, file in tensors if match and match[1] == str(layer)}

    def _scan(self) -> dict[str, str]:
        """Without an index: the headers of all files."""
        if not self._weight_map:
            names = sorted(name for name in self._names if name.endswith(".safetensors"))
            files: dict[str, str] = {}
            for name in names:
                for tensor in self._shard(name).header.tensors:
                    other = files.setdefault(tensor, name)
                    if other != name:
                        raise self._twice(tensor, other, name)
            self._weight_map = files
        return self._weight_map

    def _twice(self, tensor: str, one: str, other: str) -> AgentError:
        return integrity_error(
            "two files of the model have the same tensor, and no index says which is meant",
            where=self.folder,
            found=f"{tensor} in {one} and {other}",
            wanted=f"each in one file, or {INDEX}",
            next="move away the one that is not of this model, or fetch its index",
        )

    def _shard(self, name: str) -> Shard:
        if name not in self._shards:
            if not safe_name(name):
                what = "a file of the index is outside of the model"
                raise _broken(what, self.path(INDEX), repr(name), "the name of a file beside it")
            left = whole.begun(self._names).get(name)
            if left is not None:
                raise integrity_error(
                    "a download of a file of the model did not end",
                    where=self.path(name),
                    found=f"{left} is there",
                    wanted="a whole file",
                    next=f"download it again; or, when that did end, remove {self.path(left)}",
                )
            self._shards[name] = _shard(name, self.path(name))
        return self._shards[name]

    def _tensor(self, shard: Shard, name: str) -> Tensor:
        tensor = shard.header.tensors.get(name)
        if tensor is None:
            what = f"{INDEX} says that {shard.name} has a tensor that it has not"
            raise _broken(what, shard.path, f"{len(shard.header.tensors)} others", name, kind="integrity")
        dtype, width = _PARTS[name.rpartition(".")[2]]
        if tensor.dtype != dtype or len(tensor.shape) != 2 or tensor.shape[1] != width:
            raise config_error(
                f"{name} is not what a lookup table is made of",
                where=shard.path,
                found=f"{tensor.dtype} {list(tensor.shape)}",
                wanted=f"{dtype} [rows, {width}]",
                next=_SRC,
            )
        return tensor

    def _read_config(self) -> tuple[rowsplit.Config, str]:
        if not self.has(CONFIG):
            return {}, ""
        path = self.path(CONFIG)
        try:
            data = nas.small(path, _CONFIG_LIMIT)
            config = None if data is None else json.loads(data)
        except PermissionError:  # whose it is, and who we are, is told elsewhere
            raise
        except OSError as error:
            text = str(error.strerror or error)
            raise _broken("config.json cannot be read", path, text, "a file that can be") from error
        except (ValueError, RecursionError) as error:
            raise _broken("config.json is no JSON", path, str(error), "a JSON object") from error
        if data is None or not isinstance(config, dict):
            text = f"more than {_CONFIG_LIMIT} bytes" if data is None else repr(config)[:100]
            wanted = f"an object, of at most {_CONFIG_LIMIT} bytes"
            raise _broken("config.json is no JSON object", path, text, wanted)
        return config, hashlib.sha256(data).hexdigest()


def _broken(what: str, path: str, found: str, wanted: str, kind: str = "config") -> AgentError:
    """A file of the model that is not what it should be."""
    return AgentError(what, kind=kind, where=path, found=found, wanted=wanted, next=shards.AGAIN)


def _json(value: object) -> str:
    return "an object" if isinstance(value, dict) else json.dumps(value, default=lambda _: {})[:200]


def _shard(name: str, path: str) -> Shard:
    link = link_text(path)  # before it is opened; read again when the copy is done
    above, _, blob = link.rpartition("/")
    with closing(FileSource(path)) as source:
        header = safetensors.read(source)
        source.check()
        blob = blob if os.path.basename(above) == "blobs" else ""
        return Shard(name, path, link, blob, source.size, header, source.version)


def link_text(path: str) -> str:
    """The text of a symbolic link, "" when it is none."""
    try:
        return nas.link(path)
    except FileNotFoundError:  # opening it tells so in better words
        return ""


def _weight_map(path: str) -> tuple[dict[str, str], str]:
    """(the file of each tensor of a table, sha256 of the index). Found by their text as it passes: an index of 96,000
    tensors makes 60 MiB of objects, and four are wanted. What it says is checked against the headers.
    """
    files: dict[str, str] = {}
    pattern, digest, carry, ends = re.compile(_ENTRY), hashlib.sha256(), b"", shards.Whole()
    with closing(FileSource(path)) as source:
        buffer = memoryview(bytearray(_BLOCK))
        for start in range(0, source.size, _BLOCK):
            got = source.read(buffer, start)
            digest.update(buffer[:got])
            ends.feed(buffer[:got])
            text = carry + buffer[:got]
            carry = text[-_CARRY:]
            for match in pattern.finditer(text):
                name, file = shards.unquoted(match[1]), shards.unquoted(match[2])
                if files.setdefault(name, file) != file:
                    what, twice = f"{INDEX} has a tensor in two files", f"{name} in {files[name]} and {file}"
                    raise _broken(what, path, twice, "each in one file", kind="integrity")
        source.check()
    if files and not ends.is_whole:  # without a table in it, others say what it is
        raise shards.cut_off(path)
    return files, digest.hexdigest()
