"""What is said of staged data that does not fit: the figures, and what would make room. In plans and in errors."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sparkbuild.core import units
from sparkbuild.core.errors import SpaceError
from sparkbuild.core.plan import Plan
from sparkbuild.core.reasons import Reason
from sparkbuild.staging.eviction import Eviction, Need, together

_ROUND = 1_000_000  # bytes: what is free moves meanwhile


def told(made: Plan, found: Iterable[Eviction], *, evict: bool) -> Plan:
    """The plan, with further reasons for staged data that does not fit. `evict`: what may go will, where that is
    enough.

    It is no more than an estimate, so it stops nothing: staging itself counts again, file by file.
    """
    of = {task: (one, need) for one in found for need in one.need.singles for task in need.tasks}
    steps = (
        msgspec.structs.replace(step, reasons=(*step.reasons, *_reasons(*of[step.goal.task], evict=evict)))
        if step.goal.uri.scheme == "staged" and step.goal.task in of
        else step
        for step in made
    )
    return Plan(tuple(steps))


def _reasons(one: Eviction, need: Need, *, evict: bool) -> tuple[Reason, ...]:
    """For one task, whose own need is `need`: what is sure, that it will be refused since it does not fit by itself; or
    that not all will fit which do so by themselves. What it keeps free is its own affair.
    """
    if evict and one.chosen is not None:
        short = one.need.write + need.min_free > need.free
        return (Reason("room", f"does not fit yet: {figures(one.need)}"),) if short else ()
    alone = [other for other in one.need.singles if not other.short]
    if need.short:
        texts = [f"will be refused: {figures(need)}", *([] if evict else [_advice_alone(one, need)])]
    elif sum(other.write for other in alone) + need.min_free > need.free:
        texts = [f"may be refused: {_together(alone, need)}", *([] if evict else [f"{advice(one)}{_some(one, alone)}"])]
    else:
        texts = []
    return tuple(Reason("room", text) for text in texts)


def _together(alone: list[Need], need: Need) -> str:
    """The figures of blocks of which each would fit, seen by one of them."""
    write = sum(other.write for other in alone)
    least = "at least " if any(other.unsized for other in alone) else ""
    text = (
        f"all {len(alone)} blocks on this disk together want {least}{units.size(write)} and {units.size(need.free)} is"
    )
    if write > need.free:
        return f"{text} free, so some of them will be refused"
    return (
        f"{text} free, so {units.size(need.min_free)} would not stay free (min_free, {_file(need.keeper)}) were it last"
    )


def _some(one: Eviction, alone: list[Need]) -> str:
    """Those that fit together, where nothing makes room for all."""
    fit: list[Need] = []
    for need in alone:
        if not together([*fit, need]).short:
            fit.append(need)
    return (
        "" if one.chosen is not None else f"; these fit: doit {' '.join(task for need in fit for task in need.tasks)}"
    )


def _advice_alone(one: Eviction, need: Need) -> str:
    if one.chosen is None and need.short <= one.could:
        return f"for this one alone: doit {need.tasks[0]} --evict; for all, {advice(one)}"
    return advice(one)


def figures(need: Need) -> str:
    """What is found, and what is wanted, in one line."""
    return f"found {units.size(need.free)} free, wanted {_wanted(need)}"


def _wanted(need: Need) -> str:
    blocks = f" of {len(need.tasks)} blocks" if need.tasks[1:] else ""
    least = "at least " if need.unsized else ""
    spare = f" + {units.size(need.min_free)} to stay free (min_free, {_file(need.keeper)})" if need.min_free else ""
    return f"{least}{units.size(need.write)} for the data{blocks}{spare}: {units.size(need.short)} missing"


def advice(one: Eviction) -> str:
    """What would make room: the command that does, or that none would, and what else."""
    if one.chosen is not None:
        return f"{_command(one.need)}, which removes {units.size(one.back)} of other staged data"
    could = f"{units.size(one.could)} of other staged data may go" if one.could else "no other staged data may go"
    return f"evicting {'is not enough' if one.could else 'cannot help'}, {could}: {_otherwise(one)}"


def _otherwise(one: Eviction) -> str:
    need = one.need
    too_much = need.min_free + need.write > need.total
    size = f"{units.size(need.total)} in all"
    for free, how in ((need.free, ""), (need.free + one.could, f", with {_command(need)}")):
        if need.min_free and free > need.write:
            most = (free - need.write) // _ROUND * _ROUND or free - need.write
            text = f"lower min_free in {_file(need.keeper)} to at most {most:_}{how}"
            return f"{text}; the disk has {size}" if too_much else text
    if too_much:
        return f"a larger file system is needed: this one has {size}"
    return f"make {units.size(need.short - one.could)} more free there"


def command(found: Iterable[Eviction], named: list[str]) -> str:
    """What makes what was named, room first."""
    if all(name.partition(":")[0] == "stage" for name in named):
        return f"doit {' '.join(named)} --evict"
    tasks = [task for one in found for task in one.need.tasks]
    return f"doit {' '.join(_recipes(tasks))} --evict && doit {' '.join(named)}"


def refusal(one: Eviction) -> SpaceError:
    """Removing what may go would not be enough."""
    stay = [f"{units.size(folder.frees)} in {folder.dst} stay: {why}" for folder, why in one.staying]
    return SpaceError(
        f"{', '.join(one.need.tasks)}: removing other staged data does not make enough room on {one.need.node}",
        found="\n".join([f"{units.size(one.need.free)} free, {units.size(one.could)} may go", *stay]),
        wanted=_wanted(one.need),
        next=f"{_otherwise(one)}; nothing was removed",
    )


def _command(need: Need) -> str:
    return f"doit {' '.join(_recipes(need.tasks))} --evict"


def _recipes(tasks: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(":".join(task.split(":")[:2]) for task in tasks))


def _file(task: str) -> str:
    return f"recipes/{task.split(':')[1]}/recipe.toml"
