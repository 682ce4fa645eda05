"""`doit stage:NAME --evict`: other staged data goes, as far as there is no room for what is to be staged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.agent.wire.staging.inventory import EVICT, INVENTORY, EvictAsk, Eviction as Evicted, InventoryAsk
from sparkbuild.app.rooms import folder_of
from sparkbuild.app.space import shortage
from sparkbuild.app.space.room import may_need_room, needs
from sparkbuild.core import units
from sparkbuild.core.errors import NotMadeError, SpaceError, SparkbuildError
from sparkbuild.core.plan import RUN, Plan
from sparkbuild.core.run import call
from sparkbuild.nodes.ask import everywhere, look_everywhere
from sparkbuild.staging.eviction import Eviction, Folder, Need, choose, folders, split, stays, together, workspace

if TYPE_CHECKING:
    from collections.abc import Container

    from sparkbuild.app.catalog import Catalog
    from sparkbuild.app.observed import Observed
    from sparkbuild.app.planned import Planned
    from sparkbuild.core.goal import Goal
    from sparkbuild.core.runlog import RunLog
    from sparkbuild.nodes.cluster import Nodes

Say = Callable[[str], Any]
Row = dict[str, object]  # of `doit plan --json`
_LEAST = 50_000_000  # bytes of a staging that says something of how fast a node stages


def evictions(observed: Observed, made: Plan) -> tuple[Eviction, ...]:
    """What would go. Asks the nodes on which something does not fit."""
    short = [need for need in needs(observed.nodes, made) if need.short]
    if not short:
        return ()
    found = inventory(observed.nodes, dict.fromkeys(need.node for need in short))
    return tuple(one for need in short for one in _of_disk(observed, made, need, found[need.node]))


def told(observed: Observed, made: Plan, *, evict: bool = False) -> tuple[Plan, tuple[Eviction, ...]]:
    """The plan, which says of what does not fit that it does not, and what would go for it, or with `evict` will."""
    try:
        found = evictions(observed, made)
    except NotMadeError:
        if evict:
            raise
        return made, ()
    return shortage.told(made, found, evict=evict), found


def inventory(ways: Nodes, nodes: Iterable[str]) -> dict[str, list[Folder]]:
    """What is staged on nodes, all asked at once. Raises NotMadeError when one does not answer."""
    answers = look_everywhere(ways.agent, INVENTORY, {node: InventoryAsk() for node in nodes})
    found = {}
    for node, answer in answers.items():
        if "folders" not in answer:
            why = answer["unreachable"] if "unreachable" in answer else answer.get("problem") or "no answer"
            raise NotMadeError(f"{node} does not say what is staged there", found=why, next="doit health")
        found[node] = folders(node, answer["folders"])
    return found


def _of_disk(observed: Observed, made: Plan, need: Need, found: list[Folder]) -> list[Eviction]:
    """For what cannot be helped, each by itself; and for the others on that disk, together."""
    wanted = _wanted(observed, made, need.node)
    mine, unreadable = workspace(observed.catalog.root), unread(observed.catalog)
    goals = observed.catalog.goals.by_task.values()
    named = {folder_of(observed.nodes, goal) for goal in goals if _is_staged(goal, need.node)}
    here = [
        msgspec.structs.replace(one, orphan=one.workspace == mine and named.isdisjoint((one.dst, *one.exports)))
        for one in found
        if one.device == need.device
    ]
    why = {one.dst: stays(one, wanted, mine, unreadable) for one in here}
    free = [one for one in here if not why[one.dst]]
    staying = tuple((one, why[one.dst]) for one in here if why[one.dst] and one.frees)
    could = sum(one.frees for one in free)
    lost, others = split(need, could)
    planned = [Eviction(one, None, staying, could) for one in lost]
    rest = together(others) if others else None
    if rest is not None and rest.short:
        planned.append(Eviction(rest, choose(rest, free), staying, could))
    return planned


def _wanted(observed: Observed, made: Plan, node: str) -> dict[str, str]:
    """Folders of a node that must stay: of the recipes that this run stages, and of protected ones."""
    ours = {step.goal.uri.path.partition("/")[0] for step in made if step.goal.uri.scheme in {"staged", "export"}}
    found = {}
    for goal in observed.catalog.goals.by_task.values():
        recipe = goal.uri.path.partition("/")[0]
        if not _is_staged(goal, node):
            continue
        if recipe in ours:
            found[folder_of(observed.nodes, goal)] = f"recipe {recipe}, which is to be staged, wants it"
        elif observed.catalog.workspace.recipes[recipe].spec.protect:
            found.setdefault(folder_of(observed.nodes, goal), f"recipe {recipe} is protected")
    return found


def _is_staged(goal: Goal, node: str) -> bool:
    return goal.uri.scheme in {"staged", "export"} and goal.node == node


def unread(catalog: Catalog) -> frozenset[str]:
    """Recipes that are there and cannot be read: nobody knows what they want."""
    return frozenset(name.partition("/")[2] for name in catalog.names.problems if name.startswith("recipes/"))


def show(observed: Observed, made: Plan, found: Iterable[Eviction], say: Say) -> None:
    """Say what would go, and do nothing."""
    unsized = [step.goal.task for step in made if may_need_room(step) and step.bytes is None]
    if unsized:
        say(f"how much {', '.join(unsized)} would write is not known: no room is made for it but min_free")
    if not found:
        say("nothing has to be removed: what is to be staged fits")
    chosen = [one for eviction in found for one in eviction.chosen or ()]
    node, dst = (max((len(text) for text in texts), default=0) for texts in _columns(chosen))
    for one in chosen:
        say(f"evict   {one.node:<{node + 2}}{one.dst:<{dst + 2}}{units.size(one.frees):>9}  {_text(observed, one)}")
    for eviction in found:
        if eviction.chosen is None:
            for line in str(shortage.refusal(eviction)).splitlines():
                say(line)


def _columns(chosen: list[Folder]) -> tuple[list[str], list[str]]:
    return [one.node for one in chosen], [one.dst for one in chosen]


def rows(found: Iterable[Eviction]) -> list[Row]:
    """What would go, as `doit plan --json --evict` prints it; "enough" is false when nothing would, since it is not."""
    fields = ("node", "dst", "recipe", "block", "exports", "orphan", "frees", "served_at", "staged_at")
    return [
        {
            "node": one.need.node,
            "tasks": list(one.need.tasks),
            "missing": one.need.short,
            "enough": one.chosen is not None,
            "folders": [{name: getattr(folder, name) for name in fields} for folder in one.chosen or ()],
        }
        for one in found
    ]


def advised(planned: Planned, goal: Goal, error: SpaceError, made: Container[str]) -> SpaceError:
    """The error of a staging, with what would make room for all that is still to be staged of the recipe there, which
    is what was not `made`, by target.
    """
    observed = planned.observed
    recipe = goal.uri.path.partition("/")[0]
    left = [
        one
        for one in observed.catalog.goals.by_task.values()
        if one.uri.scheme == "staged" and one.node == goal.node and one.target not in made
    ]
    try:
        steps = [planned.step(one) for one in left if one.uri.path.partition("/")[0] == recipe]
        found = evictions(observed, Plan(tuple(step for step in steps if step.state == RUN)))
    except SparkbuildError:
        return error  # the node does not say; that there is no room is told all the same
    for one in found:
        if goal.task in one.need.tasks:
            return SpaceError(
                error.what, where=error.where, found=error.found, wanted=error.wanted, next=shortage.advice(one)
            )
    return error


def carry_out(observed: Observed, made: Plan, say: Say, runlog: RunLog) -> None:
    """Say what goes, remove it, and note it in the log of the run. Raises SpaceError, with nothing removed, when that
    would not be enough.
    """
    found = evictions(observed, made)
    for eviction in found:
        if eviction.chosen is None:
            raise shortage.refusal(eviction)
    show(observed, made, found, say)
    by_node: dict[str, list[Folder]] = {}
    for eviction in found:
        by_node.setdefault(eviction.need.node, []).extend(eviction.chosen or ())

    def evict(node: str) -> list[Evicted]:
        tasks = [task for eviction in found if eviction.need.node == node for task in eviction.need.tasks]
        keep, dsts = sorted(_wanted(observed, made, node)), [folder.dst for folder in by_node[node]]
        request: EvictAsk = {"dsts": dsts, "for": ", ".join(tasks), "keep": keep}
        return call(observed.nodes.agent(node), EVICT, request)["folders"]

    refused = []
    for node, evicted in (everywhere(tuple(by_node), evict) if by_node else {}).items():
        for folder in evicted:
            if folder["refused"]:
                refused.append(f"{folder['dst']} on {node}: {folder['refused']}")
                continue
            dst, freed = folder["dst"], folder["freed"]
            runlog.write("evicted", node=node, folder=dst, bytes=freed, files=folder["files"])
            say(f"evicted {dst} on {node}: {units.size(freed)} given back{_left(folder)}")
    if refused:
        raise SpaceError("not all that should make room could be removed", found="\n".join(refused), next="run again")


def _left(folder: Evicted) -> str:
    if not folder["others"]:
        return ""
    more = ", ..." if folder["others"] > len(folder["left"]) else ""
    return f"; not ours, and left there: {', '.join(folder['left'])}{more}"


def _text(observed: Observed, one: Folder) -> str:
    """Whose it is, when it was of use, and what it costs to have it again."""
    served = f"last served {units.when(one.served_at)}" if one.served_at else "never served"
    staged = f"staged {units.when(one.staged_at)}" if one.staged_at else "its staging never finished"
    exports = f"; with its export{'s' if one.exports[1:] else ''} {', '.join(one.exports)}" if one.exports else ""
    unwanted = (
        ", which no recipe wants any more" if one.orphan and one.recipe in observed.catalog.workspace.recipes else ""
    )
    return f"{whose(observed.catalog, one)}{unwanted}; {served}, {staged}; {_cost(observed, one)}{exports}"


def whose(catalog: Catalog, one: Folder) -> str:
    """`recipe:block`, and what has become of the recipe."""
    name = f"{one.recipe}:{one.block.replace('/', ':')}"
    if one.workspace != workspace(catalog.root):
        return f"{name} of {one.workspace or 'an unknown workspace'}"
    if one.recipe in catalog.workspace.recipes or one.recipe in unread(catalog):
        return name
    return f"{name}, whose recipe is gone"


def _cost(observed: Observed, one: Folder) -> str:
    before = observed.made_before()
    last = before.get(f"staged://{one.node}/{one.recipe}/{one.block}")
    if last is not None and one.workspace == workspace(observed.catalog.root):
        return f"took {units.duration(last.seconds)} to stage"
    like = [made for uri, made in before.items() if uri.startswith(f"staged://{one.node}/") and made.bytes >= _LEAST]
    seconds, size = sum(made.seconds for made in like), sum(made.bytes for made in like)
    if seconds and one.total:
        return f"about {units.duration(one.total * seconds / size)} to stage again"
    return "how long it took to stage is not known"
