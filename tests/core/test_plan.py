"""The plan by tables: verdicts in, states out; nothing is mocked, since nothing is touched."""

import pytest

from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import Verdict, closure, plan
from sparkbuild.core.reasons import Reason


def goal(name: str, *needs: Goal, transient: bool = False) -> Goal:
    return Goal(
        task=f"t:{name}",
        uri=Uri("image", "dgx1", name),
        key=Key({"name": name}),
        doc="",
        needs=needs,
        transient=transient,
    )


def chain() -> dict[str, Goal]:
    artifact = goal("artifact", transient=True)
    staged = goal("staged", artifact)
    image = goal("image")
    lane = goal("lane", image, staged)
    return {"artifact": artifact, "staged": staged, "image": image, "lane": lane, "bench": goal("bench", lane)}


def states(selected: list[str], facts: dict[str, str]) -> dict[str, str]:
    goals = chain()

    def judge(wanted: Goal) -> Verdict:
        state = facts.get(wanted.uri.path, "ok")
        return Verdict(state, (Reason("x", "stale"),) if state != "ok" else ())

    made = plan([goals[name] for name in selected], judge)
    return {step.goal.uri.path: step.state for step in made}


@pytest.mark.parametrize(
    ("selected", "facts", "wanted"),
    [
        (["lane"], {}, "artifact=ok staged=ok image=ok lane=ok"),
        (["lane"], {"lane": "run"}, "artifact=ok staged=ok image=ok lane=run"),
        (["lane"], {"image": "run"}, "artifact=ok staged=ok image=run lane=maybe"),
        (["bench"], {"image": "run"}, "artifact=ok staged=ok image=run lane=maybe bench=maybe"),
        # a transient goal that nobody needs is left alone, one that somebody needs is not
        (["lane"], {"artifact": "run"}, "artifact=ok staged=ok image=ok lane=ok"),
        (["lane"], {"artifact": "run", "staged": "run"}, "artifact=run staged=run image=ok lane=maybe"),
        (["artifact"], {"artifact": "run"}, "artifact=run"),
        (["lane", "artifact"], {"artifact": "run"}, "artifact=run staged=maybe image=ok lane=maybe"),
        # what consumes it is on a node that does not answer: nobody knows whether it is needed
        (["lane"], {"staged": "unknown"}, "artifact=unknown staged=unknown image=ok lane=maybe"),
        (["lane", "artifact"], {"staged": "unknown"}, "artifact=ok staged=unknown image=ok lane=maybe"),
        (["lane"], {"lane": "unknown"}, "artifact=ok staged=ok image=ok lane=unknown"),
        (["image"], {"lane": "run"}, "image=ok"),
    ],
)
def test_states(selected: list[str], facts: dict[str, str], wanted: str) -> None:
    assert states(selected, facts) == dict(pair.split("=") for pair in wanted.split())


def test_needs_come_first_and_once() -> None:
    goals = chain()
    order = [found.uri.path for found in closure([goals["bench"], goals["lane"], goals["bench"]])]
    assert order == ["image", "artifact", "staged", "lane", "bench"]


def test_maybe_names_what_it_waits_for() -> None:
    goals = chain()
    made = plan([goals["lane"]], lambda g: Verdict("run" if g is goals["image"] else "ok"))
    step = made.of(goals["lane"])
    assert step is not None
    assert [reason.text for reason in step.reasons] == ["waits for t:image"]
    assert [step.goal.uri.path for step in made.stale] == ["image", "lane"]


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"archive": "run", "deb": "run"}, "deb=ok archive=ok sync=ok"),
        ({"sync": "run", "deb": "run"}, "deb=ok archive=ok sync=run"),
        ({"sync": "run", "archive": "run", "deb": "run"}, "deb=run archive=run sync=run"),
        ({"sync": "unknown", "archive": "run", "deb": "run"}, "deb=unknown archive=unknown sync=unknown"),
    ],
)
def test_what_a_transient_goal_needs_is_needed_when_it_is_itself(facts: dict[str, str], wanted: str) -> None:
    archive = goal("archive", goal("deb", transient=True), transient=True)
    made = plan([goal("sync", archive)], lambda one: Verdict(facts.get(one.uri.path, "ok")))
    assert {step.goal.uri.path: step.state for step in made} == dict(pair.split("=") for pair in wanted.split())


def test_one_node_needs_it_and_another_does_not_say() -> None:
    archive = goal("archive", goal("deb", transient=True), transient=True)
    goals = [Goal(f"sync:{node}", Uri("image", node, "x"), Key({}), "", needs=(archive,)) for node in ("dgx1", "dgx2")]

    def states_by(facts: dict[str, str]) -> dict[str, str]:
        made = plan(goals, lambda one: Verdict(facts.get(one.node if one in goals else one.uri.path, "ok")))
        return {step.goal.task: step.state for step in made}

    silent = states_by({"dgx2": "unknown"})
    assert (silent["t:archive"], silent["sync:dgx1"], silent["sync:dgx2"]) == ("unknown", "ok", "unknown")
    known = states_by({"dgx1": "run", "dgx2": "unknown"})
    assert (known["t:archive"], known["t:deb"]) == ("ok", "ok"), "it is there: nothing is made from the packages"
    missing = states_by({"dgx1": "run", "dgx2": "unknown", "archive": "run", "deb": "run"})
    assert (missing["t:archive"], missing["t:deb"]) == ("run", "run")
    made = plan(goals, lambda _one: Verdict("unknown"))
    step = made.of(archive)
    assert step is not None
    assert ([reason.text for reason in step.reasons], step.waits) == (["waits to see dgx1, dgx2"], True)
