"""llama-benchy: its command line, its events, and its result."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.bench.harness import BOOK_URL
from sparkbuild.bench.manifest import Cell, Speed
from sparkbuild.bench.target import BenchTarget
from sparkbuild.core.run import Progress
from sparkbuild.workspace.shapes.schema import Throughput

PROGRAM = "llama-benchy"


def command(settings: Throughput, target: BenchTarget, tokenizer: str, result: str, engine: str = "") -> list[str]:
    """The command line; `result` is the JSON file to write. Events go to stdout as JSON lines.

    `--exact-tg`: a small model that stops after one token would leave a cell without a decode speed.
    `--skip-coherence`: that test samples, so it fails now and then; the gates ask at temperature 0.
    `--no-cache`, `--no-adapt-prompt`, `--latency-mode generation`: as tool-eval-bench calls it for its own tables.
    `--extra-body return_token_ids=false` for the engine `sglang`: it refuses that field together with streaming, and
    llama-benchy sets it otherwise.
    """
    argv = [target.python, "-I", "-m", "llama_benchy", "--base-url", f"{target.base_url.rstrip('/')}/v1"]
    argv += ["--model", target.model_id, "--book-url", BOOK_URL, "--tokenizer", tokenizer, "--runs", str(settings.runs)]
    lists = {
        "--pp": settings.prompt,
        "--tg": settings.generate,
        "--depth": settings.depth,
        "--concurrency": settings.concurrency,
    }
    for flag, values in lists.items():
        argv += [flag, *map(str, values)]
    argv += ["--latency-mode", "generation", "--exact-tg", "--no-cache", "--no-adapt-prompt", "--skip-coherence"]
    if engine.lower() == "sglang":
        argv += ["--extra-body", "return_token_ids=false"]
    # Without it, a run in which every request failed ends with code 0.
    argv += ["--exit-on-first-fail", "--format", "json", "--save-result", result, "--emit-progress", "-"]
    return argv


def requests(settings: Throughput) -> int:
    """How many requests are measured; the warm-up before each cell is not told in the events."""
    cells = len(settings.prompt) * len(settings.generate) * len(settings.depth)
    return cells * sum(settings.concurrency) * settings.runs


class Events:
    """Follows the events of a run (schema llama-benchy-progress.v1): how far it is, and how many requests failed."""

    def __init__(self, settings: Throughput) -> None:
        self.total = requests(settings)
        self.done = 0
        self.failed = 0
        self.error = ""
        self._cells: dict[str, str] = {}

    def take(self, line: str) -> Progress | None:
        """One line of output; a Progress when a request began or ended. Other lines are passed over."""
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "request_start":
            sizes = [event.get(name) for name in ("prompt_size", "response_size", "context_size", "concurrency")]
            self._cells[str(event.get("request_id"))] = "pp{} tg{} @ d{} c{}".format(*sizes)
        elif kind == "request_end":
            self.done += 1
            if event.get("error"):
                self.failed += 1
                self.error = one_line(str(event["error"]))
        else:
            return None
        return Progress(
            f"{PROGRAM} {self._cells.get(str(event.get('request_id')), '')}", self.done, self.total, "requests"
        )


def last_error(lines: list[str]) -> str:
    """The last line of its output that tells of an error, "" when none does."""
    told = [
        line.strip()
        for line in lines
        if not line.startswith("{") and ("error" in line.lower() or "disconnected" in line)
    ]
    return one_line(told[-1], 300) if told else ""


def idle_connection_was_closed(error: str) -> bool:
    """True for the race of HTTP keep-alive: the engine closed an idle connection in the moment it was used again, which
    a busy machine brings about now and then. It says nothing of the engine, so the run may be made again as a whole.
    """
    return "server disconnected" in error.lower()


def read(data: bytes, failed: int = 0, corpus_sha256: str = "") -> tuple[Speed, str]:
    """The cells in a result file, and the version of the program that wrote it. Raises ValueError for another shape.

    A metric that is null (nothing could be computed) becomes 0, which `complete` does not accept.
    """
    try:
        result = msgspec.json.decode(data)
        cells = tuple(_cell(row) for row in result["benchmarks"] if not row.get("is_context_prefill_phase"))
        speed = Speed(cells, failed, str(result["latency_mode"]), float(result["latency_ms"]), corpus_sha256)
        return speed, str(result["version"])
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a result of {PROGRAM}: {type(error).__name__}: {error}") from error


def _cell(row: Any) -> Cell:
    return Cell(
        prompt=int(row["prompt_size"]),
        generate=int(row["response_size"]),
        depth=int(row["context_size"]),
        concurrency=int(row["concurrency"]),
        prefill_tps=_mean(row["pp_throughput"]),
        decode_tps=_mean(row["tg_throughput"]),
        ttft_ms=_mean(row["e2e_ttft"]),
        runs=len((row["pp_throughput"] or {}).get("values") or ()),
    )


def _mean(metric: Any) -> float:
    return 0.0 if metric is None else float(metric["mean"])
