"""From templates to the exact argv, environment and mounts of one rank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.templates.errors import TemplateError
from sparkbuild.core.templates.value import fill
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.fabric import Fabric
from sparkbuild.serving.launch.network import Derived, derive

MASK = "********"
_LONGEST = 128 << 10  # bytes of one argument or NAME=value with the NUL at its end: Linux's MAX_ARG_STRLEN
SECRETS = "/run/secrets"  # where a container finds them, one file each


class Rank(msgspec.Struct, frozen=True):
    """One rank of a launch. `store` is absolute on the node; `host` is where clients reach the node; `head` is the
    address of rank 0 on the fabric; `files` is the folder of the recipe's files on the node.
    """

    node: str
    rank: int
    world_size: int
    store: str
    host: str
    head: str
    fabric: Fabric
    files: str = ""


class Bind(msgspec.Struct, frozen=True):
    """A folder or file of the node in the container."""

    source: str
    target: str
    read_only: bool


class Launch(msgspec.Struct, frozen=True):
    """What is started as one rank. `secrets` are the values that must never be shown, by name. `origins` says where a
    variable comes from that the recipe did not set. `uses` are the folders of the node that it reads, `pending` the
    exports whose mounts are not known yet.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    secrets: dict[str, str]
    origins: dict[str, str] = {}
    mounts: tuple[Bind, ...] = ()
    uses: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    def shown_env(self) -> dict[str, str]:
        """The environment with the secrets masked."""
        return {name: MASK if name in self.secrets else value for name, value in self.env.items()}


def context(rank: Rank, spec: LaneSpec) -> dict[str, object]:
    """What templates see. Paths are absolute on the node: they exist only here, never in a key."""
    image = os.path.join(rank.store, spec.image)
    fabric = rank.fabric
    in_store = {"python": os.path.join(image, "bin", "python"), "files": os.path.join(image, "files")}
    return {
        "image": spec.image_paths if spec.runtime == "docker" else in_store,
        "staged": staged(rank, spec),
        "exports": {
            name: spec.exports[name]["target"] if spec.runtime == "docker" else path
            for name, path in exports(rank, spec).items()
        },
        "recipe": {"name": spec.recipe, "dir": rank.files},
        "model_id": spec.model_id,
        "host": rank.host,
        "port": spec.port,
        "node": rank.node,
        "rank": rank.rank,
        "world_size": rank.world_size,
        "head": rank.head,
        "fabric": {
            "address": fabric.address,
            "interface": fabric.interface,
            "hcas": ",".join(fabric.hcas),
            "gid_index": "" if fabric.gid_index is None else fabric.gid_index,
        },
    }


def staged(rank: Rank, spec: LaneSpec) -> dict[str, str]:
    """The folder of each block that the rank has on the node; a container has it under the same path."""
    return {
        block: os.path.normpath(os.path.join(rank.store, path))
        for block, path in spec.staged.items()
        if rank.rank in spec.staged_ranks.get(block, (rank.rank,))
    }


def exports(rank: Rank, spec: LaneSpec) -> dict[str, str]:
    """The folder of each export that the rank has on the node."""
    return {
        name: os.path.normpath(os.path.join(rank.store, export["path"]))
        for name, export in spec.exports.items()
        if rank.rank in spec.staged_ranks.get(export["block"], (rank.rank,))
    }


def launch(
    spec: LaneSpec, rank: Rank, secrets: dict[str, str], manifests: Mapping[str, Sequence[Bind]] | None = None
) -> Launch:
    """Fill in command, environment and mounts for one rank; `manifests`: mounts of exports as far as known."""
    where = f"{spec.folder}/recipe.toml"
    values = context(rank, spec)
    last = spec.head_args if rank.rank == 0 else spec.worker_args
    model = fill(spec.model, values, where)
    words = [*spec.command, *([spec.model] if model else []), *spec.args, *last]
    argv = tuple(fill(item, values, where) for item in words)
    derived = derive(rank.fabric, rank.world_size) if spec.network == "auto" else {}
    if spec.runtime == "docker":
        # a variable of a container can be read by whoever may use docker: it only says where the file is
        derived |= {f"{name}_FILE": Derived(f"{SECRETS}/{name}", f"the secret {name}, as a file") for name in secrets}
    set_by_recipe = {name: fill(text, values, where) for name, text in spec.env.items()}
    env = {name: variable.value for name, variable in derived.items()} | set_by_recipe
    origins = {
        name: f"serve.env, instead of {value.value}" if name in set_by_recipe else value.origin
        for name, value in derived.items()
    }
    mounts: tuple[Bind, ...] = ()
    uses = dict.fromkeys((*staged(rank, spec).values(), *exports(rank, spec).values()))
    pending: tuple[str, ...] = ()
    if spec.runtime == "docker":
        own = _mounts(spec, rank, values, where)
        uses |= dict.fromkeys(bind.source for bind in own)
        wanted = exports(rank, spec)
        known = {name: binds for name, binds in (manifests or {}).items() if name in wanted}
        mounts = _once((*own, *(bind for binds in known.values() for bind in binds)), spec, where)
        pending = tuple(name for name in wanted if name not in known)
    else:
        env |= secrets
    shown = [*argv, *set_by_recipe.values(), *(path for bind in mounts for path in (bind.source, bind.target))]
    leaked = [name for name, value in secrets.items() if value and any(value in text for text in shown)]
    if leaked:
        raise ConfigError(f"the value of secret {leaked[0]} would stand in the command line or a variable", where=where)
    _refuse_unstartable(spec, argv, env, where)
    return Launch(argv, env, secrets, origins, mounts, tuple(uses), pending)


def _refuse_unstartable(spec: LaneSpec, argv: tuple[str, ...], env: Mapping[str, str], where: str) -> None:
    """Raise TemplateError for what no system starts a program with: known here, before a lane is stopped for it."""
    texts = {"the first word of serve.command": (spec.command[0], argv[0])}
    texts |= {f"the argument {word[:40]!r}": (word, word) for word in argv[1:] if word}
    texts |= {f"variable {name}": (spec.env.get(name, ""), f"{name}={value}") for name, value in env.items()}
    for what, (written, text) in texts.items():
        size = len(text.encode(errors="replace"))
        if not text or "\0" in text or size >= _LONGEST:
            problem = "nothing" if not text else "the character NUL in it" if "\0" in text else f"{size} bytes"
            wanted = f"a text of less than {_LONGEST} bytes, the most that Linux hands to a program at once"
            error = TemplateError(f"{what} cannot be handed to a program", where=where, found=problem, wanted=wanted)
            error.next, error.text = "put what is long into a file of the recipe, and name that", written
            if not text:
                error.wanted, error.next = "the name or the path of a program", ""
            raise error


def _mounts(spec: LaneSpec, rank: Rank, values: Mapping[str, object], where: str) -> tuple[Bind, ...]:
    binds = [Bind(path, path, read_only=True) for path in staged(rank, spec).values()]
    binds += [Bind(path, spec.exports[name]["target"], read_only=True) for name, path in exports(rank, spec).items()]
    if rank.files:
        binds.append(Bind(rank.files, rank.files, read_only=True))
    for mount in spec.mounts:
        source, target = fill(mount.source, values, where), fill(mount.target, values, where)
        for kind, path in (("source", source), ("target", target)):
            if not os.path.isabs(path):
                raise ConfigError(
                    f"the {kind} of a mount is no absolute path",
                    where=where,
                    found=repr(path),
                    wanted="/an/absolute/path",
                )
        binds.append(Bind(os.path.normpath(source), os.path.normpath(target), mount.read_only))
    return _once(binds, spec, where)


def _once(binds: Sequence[Bind], spec: LaneSpec, where: str) -> tuple[Bind, ...]:
    """Each mount once; ConfigError for two with one target."""
    targets: dict[str, Bind] = {}
    for bind in binds:
        other = targets.setdefault(bind.target, bind)
        if other != bind:
            raise ConfigError(
                "two mounts have one target", where=where, found=f"{_told(other)} and {_told(bind)} at {bind.target}"
            )
        if spec.secrets and f"{bind.target}/".startswith(f"{SECRETS}/"):
            raise ConfigError(f"a mount would cover {SECRETS}, where the secrets are", where=where, found=bind.target)
    return tuple(targets.values())


def _told(bind: Bind) -> str:
    return f"{bind.source} ({'read only' if bind.read_only else 'writable'})"
