"""One round of a campaign: two operators at work, faults meanwhile, then what must hold, then a run without a hand."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.campaign import checker, faults
from tests.campaign.site import RECIPES, STORE, Operator, Site
from tests.rack.proc import RackError

WORK = ("serve:alpha", "serve:alpha", "serve:beta", "stage", "sync", "stop:alpha")
BESIDE = ("serve:alpha", "serve:beta", "stage", "sync", "status", "plan serve:alpha", "health")
LOST = ("staged files", "staged folder", "image", "image of the operator", "nothing")
CODES = {0, 1, 2, 3, 129, 130, 143, -2, -9, -15}
PATIENCE = 180  # seconds that a run may take, whatever happens to it
SETTLING = 45  # seconds: an agent that hears nothing ends after 30
LONGEST = 6.0  # seconds within which faults begin


@dataclass
class Count:
    """What happened in all rounds."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    violations: list[str] = field(default_factory=list)


class Round:
    """Drawn from `seed` and `number` alone, so that it can be done again."""

    def __init__(self, site: Site, seed: int, number: int, count: Count) -> None:
        self.site, self.number, self.count = site, number, count
        self.source = random.Random(f"{seed}/{number}")
        self.history: list[str] = []
        self.problems: list[str] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One line of the history."""
        self.history.append(f"{time.monotonic() - self._began:7.2f} s  {text}")

    def run(self) -> list[str]:
        """What did not hold; [] when all did."""
        draw = self.source
        lost, work = draw.choice(LOST), draw.choice(WORK)
        beside = draw.choice(BESIDE) if draw.random() < 0.6 else ""
        drawn = faults.draw(draw, draw.choice((1, 1, 2, 3)), LONGEST)
        self.say(f"round {self.number}: lost: {lost}; ann: {work}; ben: {beside or '-'}; " + "; ".join(map(str, drawn)))
        self._lose(lost)
        self._meanwhile([words for words in (work, beside) if words], drawn)
        try:
            faults.heal(self.site.nodes)
        except RackError as error:
            self.say(f"the rack: {error}")
            raise
        self._check_idle("after the faults")
        self._check("after the faults", self._data())
        self._next_run()
        self.count.rounds += 1
        return self.problems

    # -- what happens --------------------------------------------------------------------------------------------

    def _lose(self, what: str) -> None:
        """Something that the run has to make again, so that the faults meet work."""
        node = self.source.choice(self.site.nodes)
        recipe = self.source.choice(list(RECIPES))
        if what == "staged folder":
            node.run(["rm", "-rf", f"{STORE}/staged/{recipe}"])
        elif what == "staged files":
            node.run(["rm", "-f", f"{STORE}/staged/{recipe}/files/part-0.bin"])
        elif what == "image":
            for view in self.site.views():
                ids = [entry["Id"] for entry in checker.containers_of(view) if entry["State"] not in checker.ALIVE]
                owner = self.site.rack.node(view.name)
                if ids:
                    owner.docker("rm", *ids, check=False)
                for tag in checker.images_of(view):
                    owner.docker("rmi", tag, check=False)
        elif what == "image of the operator":
            subprocess.run(["rm", "-rf", self.site.operators[0].store / "archives"], check=True)

    def _meanwhile(self, words: list[str], drawn: list[faults.Fault]) -> None:
        """The operators at work, and the faults in a thread of their own: to boot a node takes a while."""
        began = time.monotonic()
        operators = self.site.operators[: len(words)]
        started = [operator.start(*text.split()) for operator, text in zip(operators, words, strict=True)]
        breaking = threading.Thread(target=self._break, args=(drawn, started, began))
        breaking.start()
        texts = [self._end(process) for process in started]
        breaking.join()
        for operator, text, process, out in zip(operators, words, started, texts, strict=True):
            self._judge(operator, text, process.returncode, out)

    def _break(self, drawn: list[faults.Fault], started: list[subprocess.Popen[str]], began: float) -> None:
        ends: list[tuple[float, str, Callable[[], None]]] = []
        waiting = list(drawn)
        while waiting or ends:
            now = time.monotonic() - began
            for fault in [one for one in waiting if one.at <= now]:
                waiting.remove(fault)
                self._try(fault, started, ends, now)
            for end in [one for one in ends if one[0] <= now]:
                ends.remove(end)
                try:
                    end[2]()
                    self.say(f"ended: {end[1]}")
                except RackError as error:
                    self.say(f"not ended: {end[1]}: {error}")
            if all(process.poll() is not None for process in started):
                return  # `heal` does the rest
            time.sleep(0.02)

    def _try(
        self,
        fault: faults.Fault,
        started: list[subprocess.Popen[str]],
        ends: list[tuple[float, str, Callable[[], None]]],
        now: float,
    ) -> None:
        try:
            hit, end = faults.begin(fault, self.site.nodes, started)
        except RackError as error:
            hit = False
            self.say(f"the rack could not: {fault}: {error}")
        else:
            self.say(f"{'begun' if hit else 'met nothing'}: {fault}")
            ends.append((now + fault.lasts, fault.kind, end))
        (self.count.faults if hit else self.count.missed)[fault.kind] += 1

    def _end(self, process: subprocess.Popen[str]) -> str:
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            for view in self.site.views():
                self.say(f"{view.name} at work:\n" + "\n".join(checker.waiting(view)))
            process.kill()
            return process.communicate()[0] + f"\nCAMPAIGN: did not end within {PATIENCE} s"

    def _judge(self, operator: Operator, words: str, code: int, out: str) -> None:
        self.say(f"{operator.name}: doit {words}: exit code {code}\n{out.rstrip()}")
        outcome = "well" if code == 0 else "by a signal" if code in {129, 130, 143, -2, -9, -15} else "with a message"
        self.count.runs[outcome] += 1
        problems = []
        # a ctrl-C while Python itself starts, before any of us can take it, is told by Python
        if "Traceback" in out and not (code == -2 and out.startswith("Traceback")):
            problems.append(f"{operator.name}: doit {words}: a traceback")
        if code not in CODES or "CAMPAIGN: did not end" in out:
            problems.append(f"{operator.name}: doit {words}: exit code {code}: {out.strip()[-200:]}")
        if code in {1, 2, 3} and not out.strip():
            problems.append(f"{operator.name}: doit {words}: failed without a word")
        self._check("during the faults", problems)

    # -- what must hold ------------------------------------------------------------------------------------------

    def _check(self, when: str, problems: list[str]) -> None:
        for problem in problems:
            self.problems.append(f"round {self.number}, {when}: {problem}")
            self.say(f"VIOLATION: {problem}")

    def _check_idle(self, when: str) -> None:
        """What is ended by others takes a moment: an agent has to notice that nobody listens any more."""
        deadline = time.monotonic() + SETTLING
        homes = [operator.home for operator in self.site.operators]
        while problems := checker.idle_problems(self.site.views(), homes):
            if time.monotonic() > deadline:
                self._check(when, problems)
                return
            time.sleep(0.3)
        self.say(f"idle {when}")

    def _data(self) -> list[str]:
        stores = [operator.store for operator in self.site.operators]
        return checker.data_problems(self.site.views(), stores, self.site.truth)

    def _living(self) -> set[str]:
        """Recipes of containers that live, as docker says."""
        return {
            str((entry.get("Labels") or {}).get("sparkbuild.recipe"))
            for view in self.site.views()
            for entry in checker.containers_of(view)
            if entry["State"] in checker.ALIVE
        }

    def _next_run(self) -> None:
        """Any operator serves, and nobody has to mend anything before. That another lane must be stopped first is no
        mending: a node serves one.
        """
        operator = self.source.choice(self.site.operators)
        recipe = self.source.choice(list(RECIPES))
        for other in sorted(self._living() - {recipe}):
            self._needs_no_hand(operator, f"stop:{other}")
        self._needs_no_hand(operator, f"serve:{recipe}")
        self._check_idle("after the next run")
        problems = self._data()
        for view in self.site.views():
            if not any(entry["State"] == "running" for entry in checker.containers_of(view)):
                problems.append(f"{view.name}: serve:{recipe} was well, and no container runs")
            problems += checker.whole_problems(view.folder, recipe, self.site.truth)
            problems += [
                one
                for one in checker.part_problems(view.folder)
                if f"/{recipe}/" in one or not ("/staged/" in one or "/lanes/" in one)
            ]
        self._check("after the next run", problems)

    def _needs_no_hand(self, operator: Operator, task: str) -> None:
        process = operator.start(task)
        out = self._end(process)
        self.say(f"{operator.name}: doit {task}: exit code {process.returncode}\n{out.rstrip()}")
        if process.returncode or "Traceback" in out:
            text = json.dumps(out.strip()[-400:])
            self._check("the next run", [f"doit {task} needs a hand: exit code {process.returncode}: {text}"])
