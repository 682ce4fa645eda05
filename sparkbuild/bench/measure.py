"""One bench from its start to its package: every way it can end leaves a package that says which way it was."""

from __future__ import annotations

import hashlib
import shutil
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from sparkbuild.bench import benchy, harness, package, tooleval
from sparkbuild.bench.complete import problems
from sparkbuild.bench.goal import BenchSpec, settings
from sparkbuild.bench.manifest import FORMAT, Engine, Manifest, Program, Scores, Speed
from sparkbuild.bench.observe import reports_folder
from sparkbuild.bench.served import identify
from sparkbuild.bench.target import BenchTarget, fill
from sparkbuild.core import child
from sparkbuild.core.errors import NotMadeError
from sparkbuild.core.goal import Goal
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.core.key import Key
from sparkbuild.core.plan import closure
from sparkbuild.core.run import Progress, Run
from sparkbuild.workspace.shapes.schema import Throughput, ToolEval

ATTEMPTS = 3  # of a throughput run


def measure(goal: Goal, target: BenchTarget, run: Run, label: str) -> Path:
    """Run the recipe's bench against the lane; returns the complete package.

    Raises NotMadeError when the run is incomplete, and whatever ended it early; both leave an `_incomplete` package.
    """
    reports = reports_folder(run.root, goal.spec.recipe)
    for left in package.sweep(reports):
        run.note(f"a run that was killed left {left.name}")
    bench = Measurement(goal, target, run, package.start(reports, label), label)
    try:
        bench.all()
    except BaseException as error:
        bench.because.append(_why(error))
        run.note(f"incomplete: {bench.close()}")
        raise
    final = bench.close()
    if bench.because:
        raise NotMadeError(
            f"the bench of {goal.spec.recipe} is incomplete",
            where=str(final.relative_to(run.root)),
            found="\n".join(bench.because),
            next=f"see the logs in that folder, then: doit bench:{goal.spec.recipe} --label={label}",
        )
    run.note(f"complete: {final}")
    return final


class Measurement:
    """One bench under way, and what is known of it so far; `because` collects what makes it incomplete."""

    def __init__(self, goal: Goal, target: BenchTarget, run: Run, made: package.Package, label: str) -> None:
        self.goal = goal
        self.spec: BenchSpec = goal.spec
        self.target = target
        self.run = run
        self.made = made
        self.label = label
        self.work = made.scratch
        self.engine: Engine | None = None
        self.programs: dict[str, Program] = {}
        self.scores: Scores | None = None
        self.speed: Speed | None = None
        self.because: list[str] = []

    def all(self) -> None:
        """Do everything the recipe asks for."""
        # The manifest of a run that is killed without being able to say so.
        killed = self.manifest(["the run was killed before its end"])
        package.write_manifest(self.made.part, killed)
        package.copy_recipe(self.made.part, self.run.root / self.spec.folder, self._recipe_files())
        self.engine = identify(self.target.base_url, self.target.model_id)
        installed = harness.versions(self.target.python, self.run.log)
        self.programs = {name: Program(installed=version) for name, version in installed.items()}
        text = harness.english()
        self.work = harness.prepare(self.made.scratch, text)
        tokens = self._tokenizer(self.spec.bench.throughput)  # before hours of scenarios
        if self.spec.bench.tool_eval is not None:
            self._tool_eval(self.spec.bench.tool_eval)
        if self.spec.bench.throughput is not None:
            identify(self.target.base_url, self.target.model_id)
            self._throughput(self.spec.bench.throughput, tokens, hashlib.sha256(text.encode()).hexdigest())
        after = identify(self.target.base_url, self.target.model_id)
        if after != self.engine:
            self.because.append(f"another engine answers than at the start: {self.engine.version} -> {after.version}")

    def close(self) -> Path:
        """Give the package its name; what was not measured is said in it."""
        self.because += problems(self.spec.bench, self.scores, self.speed)
        return self.made.close(self.manifest(self.because))

    def _recipe_files(self) -> list[str]:
        prefix = f"{self.spec.folder}/"
        inputs = (*self.goal.inputs, *self.goal.needs[0].inputs)
        return [item.path.removeprefix(prefix) for item in inputs if item.path.startswith(prefix)]

    def _tool_eval(self, tool_eval: ToolEval) -> None:
        events = tooleval.Events()
        results = self.made.part / "tool_eval"
        result = results / "result.json"
        argv = tooleval.command(tool_eval, self.target, self.label, str(result))
        code = self._harness(argv, results, events)
        for report in (self.work / "runs").rglob("*.md"):
            shutil.move(report, results / "report.md")
        if (self.work / "data/benchmarks.sqlite").is_file():
            shutil.move(self.work / "data/benchmarks.sqlite", results / "benchmarks.sqlite")
        self._ended(tooleval.PROGRAM, code, events.error)
        if result.is_file():
            try:
                self.scores, version = tooleval.read(result.read_bytes())
                self._reported(tooleval.PROGRAM, version)
            except ValueError as error:
                self.because.append(str(error))

    def _tokenizer(self, throughput: Throughput | None) -> str:
        if throughput is None:
            return ""
        where = f"{self.spec.folder}/recipe.toml [bench.throughput]"
        self.run.report(Progress("tokenizer"))
        source = harness.fetched(fill(throughput.tokenizer, self.target, where), self.target, self.work, self.run)
        return str(harness.tokenizer(source, self.target, self.made.scratch, self.run.log, where))

    def _throughput(self, throughput: Throughput, tokens: str, corpus: str) -> None:
        results = self.made.part / "throughput"
        result = results / "result.json"
        engine = self.engine.name if self.engine else ""
        argv = benchy.command(throughput, self.target, tokens, str(result), engine)
        attempt = 0
        while True:
            attempt += 1
            events = benchy.Events(throughput)
            code = self._harness(argv, results, events)
            program = self.programs.get(benchy.PROGRAM, Program())
            self.programs[benchy.PROGRAM] = msgspec.structs.replace(program, attempts=attempt)
            if code and not events.error:  # it need not have been told as the end of a request
                events.error = benchy.last_error(child.last_lines(results / "log.txt", 40))
            if code == 0 or attempt == ATTEMPTS or not benchy.idle_connection_was_closed(events.error):
                break
            self.run.note(f"{benchy.PROGRAM}: {events.error}: measured again from its start")
        self._ended(benchy.PROGRAM, code, events.error)
        if result.is_file():
            try:
                self.speed, version = benchy.read(result.read_bytes(), events.failed, corpus)
                self._reported(benchy.PROGRAM, version)
            except ValueError as error:
                self.because.append(str(error))

    def _harness(self, argv: list[str], results: Path, events: tooleval.Events | benchy.Events) -> int:
        """Run a harness to its end with its output in the package's log; its exit code is told, not believed."""

        def on_line(line: str) -> None:
            progress = events.take(line)
            if progress is not None:
                self.run.report(progress)

        self.run.note("$ " + " ".join(argv))
        environment = harness.environment(self.made.scratch)
        return child.run(argv, log=results / "log.txt", cwd=self.work, env=environment, on_line=on_line, check=False)

    def _ended(self, program: str, code: int, error: str) -> None:
        if code:
            self.because.append(f"{program} ended with code {code}" + (f": {error}" if error else ""))

    def _reported(self, program: str, version: str) -> None:
        self.programs[program] = msgspec.structs.replace(self.programs.get(program, Program()), reported=version)

    def manifest(self, because: list[str]) -> Manifest:
        """What is known now, as a manifest."""
        lane = self.goal.needs[0]
        below = closure(self.goal.needs)
        tables = settings(self.spec.bench)
        return Manifest(
            format=FORMAT,
            recipe=self.spec.recipe,
            cluster=self.spec.cluster,
            label=self.label,
            started=_iso(self.made.started),
            finished=_iso(datetime.now(timezone.utc)),
            complete=not because,
            incomplete_because=tuple(dict.fromkeys(because)),
            key=self.goal.key.digest,
            parts=self.goal.key.parts,
            lane=lane.key.parts,
            lane_key=lane.key.digest,
            locks=self.spec.locks,
            images={item.uri.path: item.key.digest for item in below if item.uri.scheme == "image"},
            staged={item.uri.path: item.key.digest for item in below if item.uri.scheme == "staged"},
            settings=tables,
            settings_fingerprint=Key(tables).digest,
            engine=self.engine,
            harness=self.programs,
            scores=self.scores,
            speed=self.speed,
        )


def _why(error: BaseException) -> str:
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return "the run was interrupted"
    text = str(error).splitlines()
    return text[0] if text else type(error).__name__


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
