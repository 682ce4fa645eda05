"""The lines of all tasks but the user's own, as `doit list` prints them without making a task of each."""

from __future__ import annotations

from collections.abc import Mapping

from sparkbuild.app.names import TASK, Names, Stop

CHECK = "read every lock and compare it with the local files it pins (no network)"
_VERIFY = "is everything that {} pins still there, and the same? (network)"
_UPDATE = "pin anew what {} follows, or what is named as component=ref (network)"
_UPDATE_RECIPE = "pin anew the image of recipe {} by its tag, or by another one with image=TAG (network)"


def all_docs(names: Names, stops: Mapping[str, Stop]) -> dict[str, str]:
    """By task: of goals, of groups of goals within a basename, and of all else."""
    docs = dict(names.docs)
    docs |= {name: group(name, members) for name, members in names.groups.items() if ":" in name}
    docs |= {f"stop:{recipe}": stop(recipe, where) for recipe, where in stops.items()}
    docs |= {f"repro:{image}": repro(image) for image in names.reproducible}
    broken = (part.removeprefix("locks/") for part in names.problems if part.startswith("locks/"))
    docs |= {"lock:check": CHECK, **{f"lock:pin:{name}": pin(name) for name in (*names.locks, *broken)}}
    docs |= {f"lock:{name}": doc for name, doc in verify(names).items()}
    return docs | {f"lock:{name}": doc for name, doc in update(names).items()}


def group(name: str, members: list[str]) -> str:
    """What `doit list` says of a group."""
    basename, _, rest = name.partition(":")
    if basename != "stage":
        return f"{basename} all of {rest} ({len(members)})"
    recipe, *place = rest.split(":")
    block = f" as block {place[1]}" if place[1:] else ""
    node = f" on {place[0]}" if place else ""
    return f"stage all that {recipe} wants{block}{node} ({len(members)} step{'s' if len(members) != 1 else ''})"


def stop(recipe: str, where: Stop) -> str:
    """Of a lane."""
    return f"stop the lane of {recipe} on {', '.join(where.nodes)}"


def repro(image: str) -> str:
    """Of an image that is built here."""
    return f"build {image} twice without cache and compare"


def pin(lock: str) -> str:
    """Of the local files of a lock."""
    return f"pin {lock}'s local files anew"


def verify(names: Names) -> dict[str, str]:
    """Of `lock:verify`, by what stands behind `lock:`."""
    every = "every lock and recipe" if names.pinnable else "every lock"
    docs = {"verify": _VERIFY.format(every), **{f"verify:{name}": _VERIFY.format(name) for name in names.locks}}
    return docs | {f"verify:{TASK}{name}": _VERIFY.format(f"recipe {name}") for name in names.pinnable}


def update(names: Names) -> dict[str, str]:
    """Of `lock:update`, by what stands behind `lock:`."""
    either = _UPDATE.format(f"lock NAME or recipe {TASK}NAME")
    docs = {"update": either, **{f"update:{name}": _UPDATE.format(name) for name in names.locks}}
    return docs | {f"update:{TASK}{name}": _UPDATE_RECIPE.format(name) for name in names.pinnable}
