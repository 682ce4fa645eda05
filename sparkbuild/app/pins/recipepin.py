"""`doit lock:update serve:RECIPE [image=TAG]`: pin the image of a registry in the recipe that runs in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from sparkbuild.app.catalog import Catalog
from sparkbuild.app.names import TASK
from sparkbuild.core.errors import ConfigError, LockError, UpstreamError
from sparkbuild.core.run import Run
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.locks.reference import Reference, is_reference, is_tag, parse, rewritten
from sparkbuild.workspace.shapes.workspace import Recipe
from sparkbuild.workspace.toml import edit, tomlfile

_KEY = "image"


def pin(
    name: str, asked: Mapping[str, str], catalog: Catalog, run: Run, *, dry: bool
) -> tuple[list[str], dict[str, str]]:
    """Look up the tag that is `asked` for as `image`, else the one that the recipe has, and write its digest. Returns
    lines to tell, and what was written by its key. Raises ConfigError when there is nothing to look up or the file
    cannot be written, UpstreamError when the registry does not tell; nothing is written then.
    """
    recipe = catalog.workspace.recipes[name]
    path = catalog.root / recipe.dir / "recipe.toml"
    old = recipe.spec.image
    where = f"{catalog.relative(path)}:{tomlfile.line_of(path, catalog.root, _KEY)}"
    image = _of_registry(recipe, catalog, where)
    tag = _tag(name, image, asked, where)
    run.note(f"look up {image.repository}:{tag}")
    new = rewritten(old, tag, _digest(image, tag, where))
    found = edit.find(path, catalog.root, _KEY)
    if found.value != old:
        raise edit.changed(found.shown)
    if new == old:
        return ["nothing to change", f"{_KEY}: {tag} still means {image.digest}"], {}
    change = [f"{_KEY}: {old} -> {new}"]
    if parse(new).digest == image.digest:
        change.append("  the image is the same: nothing is made anew")
    if dry:
        return [f"{found.where} would change; nothing was written", *change], {}
    found.put(new)
    return [f"changed {found.where}", *change], {_KEY: new}


def check(name: str, asked: Mapping[str, str], catalog: Catalog) -> None:
    """Raise ConfigError when the recipe has no image to pin, or what is `asked` for cannot be meant. No network."""
    recipe = catalog.workspace.recipes[name]
    path = catalog.root / recipe.dir / "recipe.toml"
    where = f"{catalog.relative(path)}:{tomlfile.line_of(path, catalog.root, _KEY)}"
    _tag(name, _of_registry(recipe, catalog, where), asked, where)


def _of_registry(recipe: Recipe, catalog: Catalog, where: str) -> Reference:
    image = recipe.spec.image
    if is_reference(image):
        return parse(image)
    lock = catalog.workspace.images[image].lock.name
    raise ConfigError(
        f"recipe `{recipe.name}` runs in an image of this workspace, which has no digest to pin",
        where=where,
        found=f'{_KEY} = "{image}"',
        next=f"`doit lock:update {lock}` pins anew what it is made from",
    )


def _tag(name: str, image: Reference, asked: Mapping[str, str], where: str) -> str:
    """The tag to look up: as docker, `latest` where an image has neither tag nor digest."""
    for key in asked:
        if key != _KEY:
            raise LockError(
                f"a recipe has no `{key}` to update", where=where, wanted=f"`{_KEY}=TAG`, of the image that it runs in"
            )
    tag = asked.get(_KEY, image.tag or ("" if image.digest else "latest"))
    if _KEY in asked and not is_tag(tag):
        what = f"`{tag}` cannot be a tag" if tag else f"`{_KEY}=` names nothing"
        raise LockError(what, where=where, wanted=f"{_KEY}=<tag>, of {image.repository}")
    if not tag:
        raise LockError(
            f"the image of recipe `{name}` follows no tag: it has a digest alone",
            where=where,
            found=image.pinned,
            next=f"name the tag to follow: `doit lock:update {TASK}{name} {_KEY}=TAG`",
        )
    return tag


def _digest(image: Reference, tag: str, where: str) -> str:
    try:
        with closing(Registry(image.host, image.path)) as registry:
            return registry.digest(tag)
    except UpstreamError as error:
        named = f"{image.repository}:{tag}"
        error.where, error.found = where, f"{named}: {error.found}"
        error.next = f"check name and tag; {_KEY}=TAG takes another"
        if not error.reached:
            login = f"where it wants a login, `docker buildx imagetools inspect {named}` tells the digest"
            error.next = f"run again when it answers; {login}"
        raise
