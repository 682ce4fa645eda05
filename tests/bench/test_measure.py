from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sparkbuild.bench import package
from sparkbuild.bench.manifest import NAME, Manifest, decode
from sparkbuild.core.errors import NotMadeError, NotReadyError
from sparkbuild.core.plan import OK
from sparkbuild.core.run import Progress
from tests.bench import bench_run
from tests.engine import ROOT, Engine, free_port, start_engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    bench_run.workspace(tmp_path)
    return tmp_path


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "recipes/demo/reports").iterdir())


def only(root: Path) -> tuple[Path, Manifest]:
    (name,) = folders(root)
    path = root / "recipes/demo/reports" / name
    return path, decode((path / NAME).read_bytes())


def wait(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def started(root: Path, text: str) -> bool:
    return any(text in path.read_text(errors="replace") for path in root.glob("recipes/demo/reports/.*.part/*/log.txt"))


def inside(root: Path) -> list[int]:
    """Processes that work inside the workspace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(root)):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def test_a_real_bench(
    root: Path, engine: Engine, harness_python: Path, model_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not be used
    (root / ".env").write_text("TOOL_EVAL_HEADERS=X-Leak=leaked-value\n")  # must not be read
    where = bench_run.target(engine.base_url, engine.model_id, str(harness_python), str(model_file.parent))
    steps: list[Progress] = []
    verdict = bench_run.bench(root, where, steps=steps)
    assert verdict.state == OK
    path, manifest = only(root)
    assert verdict.reasons[0].text == f"complete: recipes/demo/reports/{path.name}"
    assert sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()) == [
        NAME,
        "recipe/chat.jinja",
        "recipe/recipe.toml",
        "throughput/log.txt",
        "throughput/result.json",
        "tool_eval/benchmarks.sqlite",
        "tool_eval/log.txt",
        "tool_eval/report.md",
        "tool_eval/result.json",
    ]
    assert manifest.complete
    assert manifest.incomplete_because == ()
    assert manifest.locks == {"demo": "abc"}
    assert set(manifest.images) == {"llamacpp", "harness"}
    assert set(manifest.staged) == {"demo/weights"}
    assert manifest.engine is not None
    assert manifest.engine.model_id == engine.model_id
    for name, version in (("tool-eval-bench", "3.0.0"), ("llama-benchy", "0.4.0")):
        assert (manifest.harness[name].reported, manifest.harness[name].installed) == (version, version)
    assert manifest.scores is not None
    assert manifest.speed is not None
    assert (manifest.scores.pool.count, manifest.scores.completion_rate) == (2, 100)
    assert len(manifest.scores.config_fingerprint) == 12
    assert [(cell.prompt, cell.concurrency) for cell in manifest.speed.cells] == [(64, 1), (64, 2)]
    assert all(cell.prefill_tps > 0 and cell.decode_tps > 0 for cell in manifest.speed.cells)
    assert steps[-1] == Progress("llama-benchy pp64 tg8 @ d0 c2", 3, 3, "requests")
    assert any(step.unit == "scenarios" and step.done == 2 for step in steps)
    assert "leaked-value" not in (path / "tool_eval/log.txt").read_text()
    assert json.loads((path / "tool_eval/result.json").read_text())["metadata"]["label"] == "demo"


def test_nobody_answers(root: Path, harness_python: Path, model_file: Path):
    url = f"http://127.0.0.1:{free_port()}"
    where = bench_run.target(url, "m", str(harness_python), str(model_file.parent))
    with pytest.raises(NotReadyError, match="the lane does not answer"):
        bench_run.bench(root, where)
    path, manifest = only(root)
    assert path.name.endswith("_demo_incomplete")
    assert not manifest.complete
    assert manifest.incomplete_because[0] == "the lane does not answer"
    assert bench_run.reports(root)[0]["complete"] is False


def test_another_model_answers(root: Path, engine: Engine, harness_python: Path, model_file: Path):
    where = bench_run.target(engine.base_url, "big-model", str(harness_python), str(model_file.parent))
    with pytest.raises(NotReadyError, match="does not serve big-model"):
        bench_run.bench(root, where)
    assert only(root)[1].engine is None


def test_the_tokenizer_is_missing(root: Path, engine: Engine, harness_python: Path, tmp_path: Path):
    """Told before the scenarios, which take hours, are run."""
    where = bench_run.target(engine.base_url, engine.model_id, str(harness_python), str(tmp_path / "nowhere"))
    assert bench_run.SMALL.tool_eval is not None
    with pytest.raises(Exception, match="the tokenizer for the throughput bench is missing"):
        bench_run.bench(root, where)
    path, manifest = only(root)
    assert "the tokenizer" in manifest.incomplete_because[0]
    assert manifest.scores is None
    assert not list((path / "tool_eval").glob("*")), "no scenario was begun"


def test_the_engine_dies_in_the_middle(
    root: Path, engine_python: Path, harness_python: Path, model_file: Path, tmp_path: Path
):
    engine = start_engine(engine_python, model_file, tmp_path / "engine.log")
    argv = [str(root), engine.base_url, engine.model_id, str(harness_python), str(model_file.parent)]
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_run", *argv], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        wait(lambda: started(root, '"scenario_start"') or run.poll() is not None)
        engine.stop(signal.SIGKILL)
        _, errors = run.communicate(timeout=120)
    finally:
        engine.process.kill()
        run.kill()
    assert run.returncode == 1, errors
    path, manifest = only(root)
    assert path.name.endswith("_incomplete")
    assert not manifest.complete
    told = "\n".join(manifest.incomplete_because)
    assert "the lane does not answer" in told
    assert "of its scenarios; not scored: TC-" in told
    assert "llama-benchy left no result" in told
    assert manifest.scores is not None
    assert manifest.scores.completion_rate < 100
    assert (path / "tool_eval/result.json").is_file()  # what there is is kept


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_in_the_middle(
    root: Path, engine: Engine, harness_python: Path, model_file: Path, number: signal.Signals
):
    argv = [str(root), engine.base_url, engine.model_id, str(harness_python), str(model_file.parent)]
    run = subprocess.Popen([sys.executable, "-m", "tests.bench.bench_run", *argv], cwd=ROOT)
    try:
        wait(lambda: started(root, '"scenario_start"') or run.poll() is not None)
        run.send_signal(number)
        code = run.wait(timeout=30)
    finally:
        run.kill()
        run.wait()
    if number == signal.SIGTERM:
        assert code == 143
        assert inside(root) == []
        because = "the run was interrupted"
    else:
        for pid in inside(root):  # nobody was left to end the harness
            os.kill(pid, signal.SIGKILL)
        assert [name for name in folders(root) if not name.startswith(".")] == []
        assert bench_run.reports(root) == []
        package.sweep(root / "recipes/demo/reports")
        because = "the run was killed before its end"
    path, manifest = only(root)
    assert path.name.endswith("_demo_incomplete")
    assert not (path / package.SCRATCH).exists()
    assert manifest.incomplete_because[0] == because
    (report,) = bench_run.reports(root)
    assert report["complete"] is False


def test_a_harness_that_measures_nothing(root: Path, engine: Engine, tmp_path: Path):
    """Exit code 0 and no result: what both harnesses do when every request failed."""
    (tmp_path / "python").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "t/tokenizer.json").parent.mkdir()
    (tmp_path / "t/tokenizer.json").touch()
    throughput = msgspec.structs.replace(bench_run.SMALL.throughput, tokenizer=str(tmp_path / "t"))
    where = bench_run.target(engine.base_url, engine.model_id, str(tmp_path / "python"), "")
    with pytest.raises(NotMadeError) as caught:
        bench_run.bench(root, where, msgspec.structs.replace(bench_run.SMALL, throughput=throughput))
    assert caught.value.what == "the bench of demo is incomplete"
    assert caught.value.found == "tool-eval-bench left no result\nllama-benchy left no result"
    path, manifest = only(root)
    assert caught.value.where == f"recipes/demo/reports/{path.name}"
    assert not manifest.complete
    assert bench_run.reports(root)[0]["complete"] is False
