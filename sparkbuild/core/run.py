"""What a step is given while it is applied: where to log, how to report progress, how to reach a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, overload

import msgspec

from sparkbuild.agent.wire.printable import lines
from sparkbuild.agent.wire.verbs import Verb
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.state import Made
from sparkbuild.core.writable import writing

Event = dict[str, Any]  # {"event": its kind, ...}, as agent.wire.protocol says; checked by nodes.rpc.shapes.is_event
OnEvent = Callable[[Event], None]
Ask = TypeVar("Ask")
Told = TypeVar("Told")
F_contra = TypeVar("F_contra", contravariant=True)


class Progress(msgspec.Struct, frozen=True):
    """How far a step is. `done` and `total` count bytes, or things when `unit` says so; total None = not known."""

    phase: str
    done: int = 0
    total: int | None = None
    unit: str = "B"


class Agent(Protocol):
    """A node's agent: one request, events while it works, one result."""

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        on_event: OnEvent | None = None,
        *,
        final: bool = False,
    ) -> dict[str, Any]:
        """Run a verb of the agent on the node; raises the error the agent reports, as this package's error.

        `final`: part of cleaning up, carried out though the run was told to stop.
        """


def call(
    agent: Agent,
    verb: Verb[Ask, Told],
    request: Ask,
    on_event: OnEvent | None = None,
    *,
    final: bool = False,
) -> Told:
    """`agent.call` with the shapes of the verb. The request is made by its constructor: `StopAsk(recipe=...)`."""
    return cast("Told", agent.call(verb, cast("Mapping[str, Any]", request), on_event, final=final))


class Run:
    """The surroundings of one step of one run."""

    def __init__(
        self,
        *,
        root: Path,
        log: Path,
        agent: Callable[[str], Agent],
        report: Callable[[Progress], None] | None = None,
        tell: Callable[[str], None] | None = None,
        force: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = root
        self.log = log
        self.agent = agent
        self.report = report or (lambda _progress: None)
        self.tell = tell or (lambda _text: None)  # what became of the step, should the run be interrupted
        self.force = force
        self.options = dict(options or {})
        self.unfinished = (
            ""  # set by `apply` when it leaves the goal on its way, as it was asked to: what to tell of it
        )

    def passing(self, phase: str) -> OnEvent:
        """What takes an agent's events, and passes their progress on as that of a phase."""

        def on_event(event: Event) -> None:
            if event.get("event") == "progress":
                self.report(Progress(phase, int(event["bytes"]), int(event["total"])))

        return on_event

    def note(self, text: str) -> None:
        """Add lines to the step's log, each with the UTC time, printable whoever wrote them."""
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        with writing(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as file:
                for line in lines(text).rstrip("\n").split("\n"):
                    file.write(f"{stamp} {line}\n")

    @overload  # a Verb is a str, too
    def call(self, node: str, verb: Verb[Ask, Told], request: Ask) -> Told: ...  # type: ignore[overload-overlap]
    @overload
    def call(self, node: str, verb: str, request: Mapping[str, Any]) -> dict[str, Any]: ...
    def call(self, node: str, verb: str, request: Any) -> Any:
        """Call the node's agent, passing its progress on and its log lines to the step's log."""

        def on_event(event: Event) -> None:
            if event.get("event") == "log":
                self.note(str(event.get("text", "")))
            elif event.get("event") == "progress":
                total = None if event.get("total") is None else int(event["total"])
                unit = str(event.get("unit", "B"))
                self.report(Progress(str(event["phase"]), int(event.get("bytes", 0)), total, unit))

        return self.agent(node).call(verb, request, on_event)


class Kind(Protocol[F_contra]):
    """One kind of goal: what to ask of the node, what to make of the answer (F, its fact), and how to make it so.

    `judge` is pure and is the heart: desired goal and observed fact in, verdict out.
    """

    @property
    def scheme(self) -> str:
        """Of its goals; a Look where the shapes of its facts are known (agent.wire.verbs)."""

    def query(self, goal: Goal) -> Mapping[str, object]:
        """What the node's agent should look at for this goal. `scheme` is the look, unless that is in here."""

    def judge(self, goal: Goal, fact: F_contra, last: Made | None) -> Verdict:
        """Is the goal met by what was seen, and if not, why. `last` is how it was last made, for the reasons."""

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Make the goal true; returns the bytes moved or written. Resumable, and nothing half-made looks whole."""
