"""The nodes' own view of a starting lane: every rank is watched, and the first that ends is the one to hear about."""

from __future__ import annotations

import threading
import time

from sparkbuild.agent.wire.lanes import WATCH, WatchAsk, WatchResult
from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.errors import EngineDiedError, NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.core.run import Event, Run, call
from sparkbuild.serving.ready.phases import Phase, phase_of

# seconds that a node may be out of reach while its rank starts: a switch that restarts takes a minute, and a cold load
# that is thrown away costs hours
LOST = 120.0
PAUSE = 1.0  # seconds between two tries to reach it again
TOGETHER = 1.5  # seconds that the other ranks get to end of the same cause, so that all of them are heard


class _EndWatchError(Exception):
    """Leaves the agent's call; closing its stdin ends the agent."""


class Watch:
    """One rank, kept current by a thread."""

    def __init__(self, run: Run, node: str, recipe: str, launch: str, *, rank: int = 0, label: str = "") -> None:
        self.node = node
        self.rank = rank
        self.listening = False
        self.inside = False  # listening for its own machine alone
        self.launched: float | None = None  # the launch, by this machine's monotonic clock
        self.ended: WatchResult | None = None
        self.failure: SparkbuildError | None = None
        self.last_line = ""
        self.phase: Phase | None = None
        self._label = label
        self._run = run
        self._request = WatchAsk(recipe=recipe, until="dead", launch=launch)
        self._leave = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._follow, daemon=True).start()

    def end(self) -> None:
        """Stop watching: noticed with the next event, at most a second later, and nobody needs to wait for that."""
        self._leave.set()

    def _follow(self) -> None:
        since = 0.0  # when it was last in reach
        while not self._leave.is_set():
            try:
                since = since or time.monotonic()
                agent = self._run.agent(self.node)
                self.ended = call(agent, WATCH, self._request, self._on_event)
            except (_EndWatchError, Interrupted):
                return
            except NodeError as error:
                self._run.note(f"{self.node} is out of reach: {error.what}")
                since = max(since, self._heard)
                if time.monotonic() - since > LOST:
                    self.failure = error
                    return
                self._leave.wait(PAUSE)
            except SparkbuildError as error:
                self.failure = error
                return
            else:
                return

    _heard = 0.0

    def _on_event(self, event: Event) -> None:
        self._heard = time.monotonic()
        if self._leave.is_set():
            raise _EndWatchError
        if event.get("event") == "state":
            self.listening = bool(event.get("listening"))
            self.inside = bool(event.get("inside"))
            if event.get("age") is not None:
                self.launched = time.monotonic() - float(event["age"])
            for line in event.get("lines") or ():
                self._run.note(f"{self._label}| {line}")
                self.last_line = one_line(line, 1000) or self.last_line
                self.phase = phase_of(line) or self.phase


class Watches:
    """All ranks of a launch, rank 0 first."""

    def __init__(
        self, run: Run, nodes: tuple[str, ...], recipe: str, launch: str = "", *, moment: str = "before it was ready"
    ) -> None:
        """`moment`: when a rank that ends has ended, in the words of the error."""
        self._recipe = recipe
        self._launch = launch
        self._moment = moment
        self._all = [
            Watch(run, node, recipe, launch, rank=rank, label=f"{rank} " if len(nodes) > 1 else "")
            for rank, node in enumerate(nodes)
        ]

    @property
    def head(self) -> Watch:
        """Rank 0: the one that serves."""
        return self._all[0]

    def start(self) -> None:
        """Begin to watch all of them."""
        for watch in self._all:
            watch.start()

    def end(self) -> None:
        """Stop watching."""
        for watch in self._all:
            watch.end()

    def check_for(self, seconds: float) -> None:
        """`check` for that long: what just hung up may need a moment to be seen as ended."""
        self.start()
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                self.check()
                cancel.wait(0.1)
            self.check()
        finally:
            self.end()

    def check(self) -> None:
        """Raise EngineDiedError when a rank ended, NodeError when a node is out of reach for good."""
        if any(watch.ended is not None for watch in self._all):
            if len(self._all) > 1:
                cancel.wait(TOGETHER)
            raise self._stopped() or self._died()
        for watch in self._all:
            if watch.failure is not None:
                raise self._lost(watch, watch.failure)

    def _stopped(self) -> EngineDiedError | None:
        """The error when the ranks did not end by themselves: somebody stopped the lane, or launched it anew."""
        ends = [(watch.node, watch.ended) for watch in self._all if watch.ended is not None]
        stops = [(node, stop) for node, end in ends if (stop := end.get("stopping"))]
        others = [(node, end["launch"]) for node, end in ends if end.get("launch") not in {None, "", self._launch}]
        if others and self._launch:
            return EngineDiedError(
                f"lane {self._recipe} was replaced by another launch {self._moment}",
                found="\n".join(f"{node}: launch {launch}, not {self._launch}" for node, launch in others),
                next="doit status",
            )
        if stops:
            told = [
                f"on {node} by {stop['by'] or 'somebody'} at {time.strftime('%H:%M:%S UTC', time.gmtime(stop['at']))}"
                for node, stop in stops
            ]
            return EngineDiedError(
                f"lane {self._recipe} was stopped {self._moment}",
                found="\n".join(told),
                next=f"doit serve:{self._recipe}, when it is wanted again",
            )
        return None

    def _died(self) -> EngineDiedError:
        told = []
        for watch in self._all:
            if watch.ended is None:
                continue
            lines = [one_line(line, 1000) for line in watch.ended.get("last_lines") or () if line.strip()]
            lines = lines or ["an empty log"]
            state = f" ({watch.ended['state']})" if watch.ended.get("state") else ""
            if len(self._all) > 1:
                lines = [f"rank {watch.rank} on {watch.node}{state}:", *(f"  {line}" for line in lines)]
            told += lines
        ended = [watch.rank for watch in self._all if watch.ended is not None]
        what = f"rank {', '.join(map(str, ended))} ended"
        if len(self._all) == 1:
            how = self._all[0].ended.get("state") if self._all[0].ended else ""
            what = f"its process ended{f' ({how})' if how else ''}"
        return EngineDiedError(
            f"lane {self._recipe}: {what} {self._moment}",
            found="\n".join(told),
            next=f"doit logs {self._recipe} shows the whole log",
        )

    def _lost(self, watch: Watch, failure: SparkbuildError) -> SparkbuildError:
        if len(self._all) == 1 or not isinstance(failure, NodeError):
            return failure
        return NodeError(
            f"lane {self._recipe}: rank {watch.rank} on {watch.node} is out of reach for {LOST:.0f} s",
            found=str(failure),
            next=f"when {watch.node} is back: doit stop:{self._recipe}, which ends what may still run there",
        )
