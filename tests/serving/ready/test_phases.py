"""How far a starting engine is, by the lines of its log: those that engines really write, and hostile ones."""

from __future__ import annotations

import time

import pytest

from sparkbuild.serving.ready.phases import Phase, phase_of

BAR = "Loading safetensors checkpoint shards: "

LINES: dict[str, Phase | None] = {
    # vLLM
    f"{BAR}  0% Completed | 0/48 [00:00<?, ?it/s]": Phase("shards loaded", 0, 48),
    f"{BAR} 40% Completed | 19/48 [02:11<03:21,  6.9s/it]": Phase("shards loaded", 19, 48),
    f"(VllmWorker rank=0 pid=215) {BAR} 100% Completed | 48/48 [04:00<00:00, 5.0s/it]": Phase("shards loaded", 48, 48),
    "Loading pt checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it]": Phase("shards loaded", 1, 2),
    "INFO 11-02 10:00:00 [gpu_model_runner.py:2602] Starting to load model /srv/models/qwen3-8b...": Phase(
        "loading weights"
    ),
    "INFO 11-02 10:00:00 [weight_utils.py:392] Time spent downloading weights for x: 0.5 seconds": None,
    "INFO 11-02 10:00:00 [default_loader.py:267] Loading weights took 12.34 seconds": Phase("weights loaded"),
    "INFO 11-02 10:00:00 [model_runner.py:1099] Loading model weights took 14.9888 GB": Phase("weights loaded"),
    "INFO 11-02 10:00:00 [gpu_model_runner.py:2653] Model loading took 14.9888 GiB and 13.1 seconds": Phase(
        "weights loaded"
    ),
    "INFO 11-02 10:00:00 [backends.py:559] Dynamo bytecode transform time: 4.42 s": None,
    "INFO 11-02 10:00:00 [backends.py:170] Compiling a graph for dynamic shape takes 21.5 s": Phase("compiling"),
    "INFO 11-02 10:00:00 [monitor.py:34] torch.compile takes 25.9 s in total": Phase("compiling"),
    "INFO 11-02 10:00:00 [gpu_worker.py:298] Available KV cache memory: 54.23 GiB": Phase("allocating the KV cache"),
    "INFO 11-02 10:00:00 [kv_cache_utils.py:864] GPU KV cache size: 394,848 tokens": Phase("allocating the KV cache"),
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  51%|█████     | 34/67 [00:02<00:02, 14it/s]": Phase(
        "graphs captured", 34, 67
    ),
    "Capturing CUDA graph shapes: 100%|██████████| 35/35 [00:21<00:00,  1.6it/s]": Phase("graphs captured", 35, 35),
    "INFO 11-02 10:00:00 [core.py:210] init engine (profile, create kv cache, warmup model) took 41 s": Phase(
        "warming up"
    ),
    "INFO:     Started server process [1]": None,
    "INFO:     Application startup complete.": Phase("starting to listen"),
    'INFO:     10.0.0.2:41234 - "GET /health HTTP/1.1" 200 OK': None,
    # SGLang
    "[2026-01-01 10:00:00 TP0] Load weight begin. avail mem=115.66 GB": Phase("loading weights"),
    "[2026-01-01 10:00:00 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16": Phase("weights loaded"),
    "Multi-thread loading shards:  25% Completed | 1/4 [00:01<00:03,  1.0s/it]": Phase("shards loaded", 1, 4),
    "[2026-01-01 10:00:00 TP0] KV Cache is allocated. #tokens: 1024, K size: 27.1 GB": Phase("allocating the KV cache"),
    "[2026-01-01 10:00:00 TP0] Memory pool end. avail mem=41.30 GB": Phase("allocating the KV cache"),
    "[2026-01-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes.": Phase(
        "capturing graphs"
    ),
    "Capturing batches (bs=2 avail_mem=40.17 GB):  50%|█████     | 2/4 [00:01<00:01,  1.6it/s]": Phase(
        "graphs captured", 2, 4
    ),
    "[2026-01-01 10:00:00] The server is fired up and ready to roll!": Phase("starting to listen"),
    # llama.cpp
    "load_tensors: loading model tensors, this can take a while... (mmap = true)": Phase("loading weights"),
    "srv    load_model: loading model '/srv/models/qwen3.gguf'": Phase("loading weights"),
    "common_init_from_params: warming up the model with an empty run - please wait ...": Phase("warming up"),
    "main: model loaded": Phase("weights loaded"),
    "main: server is listening on http://127.0.0.1:8080 - starting the main loop": Phase("starting to listen"),
    "llama_model_loader: - kv   0: general.architecture str = llama": None,
    # images/demo-ranks/ranks.py
    "ranks: waiting for ranks: 1/2": Phase("ranks joined", 1, 2),
    "ranks: rank 1 joined from 10.0.0.2 (2/2)": Phase("ranks joined", 2, 2),
    "ranks: lost rank 1": None,
    "ranks: waiting for the head at 10.0.0.1 port 29532: Connection refused": None,
    # a bar that is written over and over is one line
    f"\r{BAR}  0% Completed | 0/3\r{BAR} 33% Completed | 1/3\r{BAR} 66% Completed | 2/3": Phase("shards loaded", 2, 3),
    f"{'x' * 5000}\r{BAR} 66% Completed | 2/3": Phase("shards loaded", 2, 3),
    # figures that are none
    f"{BAR} Completed | 5/4": None,
    f"{BAR} Completed | 0/0": None,
    f"{BAR} Completed | {'9' * 5000}/{'9' * 5000}": None,
    f"{BAR} Completed | ²/³": None,
    "waiting for ranks: 3/2": None,
    "": None,
    "\0\x1b[31m\ufffd": None,
    "Loaded 3 plugins | 1/2": None,
    "decompiling": None,
}


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_phase(line: str) -> None:
    assert phase_of(line) == LINES[line]


HOSTILE = (
    "load shard ",
    "loadshards ",
    "loading ",
    "loading shards | ",
    "load\tshard\t",
    "load |",
    "capture graph ",
    "capture graphs |9/",
    "allocat",
    "rank 1 joined from ",
    "rank 1 joined from x (",
    "waiting for ranks: ",
    "|",
    "| ",
    "|1",
    "9",
    " ",
    "warming ",
    "a",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_line_takes_no_longer_than_a_short_one(piece: str) -> None:
    """A megabyte made for patterns that try all ways: some are worth seconds when a pattern can be had that way."""
    line = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    for _ in range(10):
        phase_of(line)
    assert (time.process_time() - begun) / 10 < 0.03, "of the processor's time; an honest line takes 0.0001 s"
