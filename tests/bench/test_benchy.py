from __future__ import annotations

import json
from typing import Any

import pytest

from sparkbuild.bench.benchy import Events, command, idle_connection_was_closed, read, requests
from sparkbuild.bench.target import BenchTarget
from sparkbuild.core.run import Progress
from sparkbuild.workspace.shapes.schema import Throughput

TARGET = BenchTarget("http://h:1/", "m", "/py", "/files")
SETTINGS = Throughput(tokenizer="t", prompt=(64, 128), generate=(8,), depth=(0, 512), concurrency=(1, 2), runs=2)


def test_the_command_line():
    argv = command(SETTINGS, TARGET, "/tok", "/out.json")
    assert argv[:4] == ["/py", "-I", "-m", "llama_benchy"]
    line = " ".join(argv)
    for part in (
        "--base-url http://h:1/v1 --model m",
        "--tokenizer /tok",
        "--runs 2",
        "--pp 64 128 --tg 8 --depth 0 512 --concurrency 1 2",
        "--exact-tg",
        "--skip-coherence",
        "--exit-on-first-fail",
        "--format json --save-result /out.json --emit-progress -",
    ):
        assert part in line


@pytest.mark.parametrize(("engine", "is_told"), [("sglang", True), ("SGLang", True), ("vllm", False), ("", False)])
def test_sglang_refuses_token_ids_in_a_stream(engine: str, is_told: bool):
    line = " ".join(command(SETTINGS, TARGET, "/tok", "/out.json", engine))
    assert ("--extra-body return_token_ids=false" in line) is is_told


def test_how_many_requests():
    assert requests(SETTINGS) == 2 * 1 * 2 * (1 + 2) * 2


def event(kind: str, number: int, **fields: Any) -> str:
    sizes = {"prompt_size": 64, "response_size": 8, "context_size": 0, "concurrency": 1}
    return json.dumps({"type": kind, "request_id": number, **(sizes if kind == "request_start" else {}), **fields})


def test_events():
    events = Events(SETTINGS)
    name = "llama-benchy pp64 tg8 @ d0 c1"
    assert events.take(event("request_start", 0)) == Progress(name, 0, 24, "requests")
    assert events.take(event("tokens", 0, count=1)) is None
    assert events.take(event("request_end", 0, error="")) == Progress(name, 1, 24, "requests")
    events.take(event("request_start", 1))
    events.take(event("request_end", 1, error="HTTP 500"))
    assert (events.done, events.failed, events.error) == (2, 1, "HTTP 500")
    for line in ("", "Warming up...", "[]", '{"type": "header"}'):
        assert events.take(line) is None


def metric(*values: float) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "std": 0.0, "values": list(values)}


def result(**changes: Any) -> bytes:
    row = {
        "prompt_size": 64,
        "response_size": 8,
        "context_size": 0,
        "concurrency": 2,
        "is_context_prefill_phase": False,
        "pp_throughput": metric(100.0, 200.0),
        "tg_throughput": metric(50.0, 50.0),
        "e2e_ttft": metric(1.0, 2.0, 3.0, 6.0),
    }
    rows = [{**row, **changes}]
    return json.dumps(
        {"version": "0.4.0", "latency_mode": "generation", "latency_ms": 2.5, "benchmarks": rows}
    ).encode()


def test_a_result():
    speed, version = read(result(), failed=1, corpus_sha256="c")
    assert version == "0.4.0"
    assert (speed.failed, speed.latency_ms, speed.corpus_sha256) == (1, 2.5, "c")
    (cell,) = speed.cells
    assert (cell.prompt, cell.generate, cell.depth, cell.concurrency, cell.runs) == (64, 8, 0, 2, 2)
    assert (cell.prefill_tps, cell.decode_tps, cell.ttft_ms) == (150.0, 50.0, 3.0)


def test_a_metric_that_could_not_be_computed_is_zero():
    speed, _ = read(result(tg_throughput=None, pp_throughput=None))
    assert (speed.cells[0].decode_tps, speed.cells[0].prefill_tps, speed.cells[0].runs) == (0.0, 0.0, 0)


def test_loading_a_context_is_no_cell():
    assert read(result(is_context_prefill_phase=True))[0].cells == ()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"benchmarks": [{}]}'])
def test_no_result(data: bytes):
    with pytest.raises(ValueError, match="not a result of llama-benchy"):
        read(data)


def test_only_a_closed_idle_connection_is_worth_another_attempt() -> None:
    assert idle_connection_was_closed("Server disconnected")
    assert not idle_connection_was_closed("")
    assert not idle_connection_was_closed("HTTP 500: out of memory")
