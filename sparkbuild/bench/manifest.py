"""The manifest of a run package: what was measured, with what, and whether all of it was."""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = "sparkbuild-run-package/v1"
NAME = "manifest.json"

Parts = dict[str, Any]  # of a key: what a recipe may say, and that is any table of TOML


class Engine(msgspec.Struct, frozen=True):
    """What answered at the lane's address. `source` is the endpoint that told the version."""

    base_url: str
    model_id: str
    served_ids: tuple[str, ...]
    name: str = ""
    version: str = ""
    source: str = ""


class Program(msgspec.Struct, frozen=True):
    """A harness's version, as its own output says and as its installed metadata says; "" when not known. `attempts`
    is how often it was started: what counts is the last.
    """

    reported: str = ""
    installed: str = ""
    attempts: int = 1


class Pool(msgspec.Struct, frozen=True):
    """The scenarios a score is out of. `sha256` is over the sorted ids, one per line."""

    count: int
    max_points: int
    sha256: str


class Scores(msgspec.Struct, frozen=True):
    """What tool-eval-bench found. `completion_rate` in percent of the pool that was really scored.

    `excluded` failed because of the server, and count neither as `failed` nor in `points` of `pool.max_points`.
    """

    pool: Pool
    points: int
    final_score: int
    completion_rate: float
    passed: int
    partial: int
    failed: int
    excluded: tuple[str, ...] = ()
    safety_warnings: tuple[str, ...] = ()
    median_turn_ms: float | None = None
    config_fingerprint: str = ""
    status: str = "completed"


class Cell(msgspec.Struct, frozen=True):
    """One combination that llama-benchy measured: tokens asked for, mean tokens per second, milliseconds."""

    prompt: int
    generate: int
    depth: int
    concurrency: int
    prefill_tps: float
    decode_tps: float
    ttft_ms: float
    runs: int


class Speed(msgspec.Struct, frozen=True):
    """What llama-benchy found. `failed` counts requests; `corpus_sha256` is that of the text prompts were cut from."""

    cells: tuple[Cell, ...]
    failed: int
    latency_mode: str = ""
    latency_ms: float = 0.0
    corpus_sha256: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """`manifest.json`. Times are UTC, ISO 8601. `complete` is what decides, not the folder's name alone.

    `key` and `parts` are the report goal's; `locks` maps lock names to their sha256, `images` and `staged` map goal
    names to keys, `files` maps the package's files to their sha256. `settings` are the recipe's [bench] tables.
    """

    format: str
    recipe: str
    cluster: str
    label: str
    started: str
    finished: str
    complete: bool
    incomplete_because: tuple[str, ...]
    key: str
    parts: Parts
    lane: Parts
    lane_key: str
    locks: dict[str, str]
    images: dict[str, str]
    staged: dict[str, str]
    settings: Parts
    settings_fingerprint: str
    engine: Engine | None = None
    harness: dict[str, Program] = {}
    scores: Scores | None = None
    speed: Speed | None = None
    files: dict[str, str] = {}


_decoder = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> bytes:
    """The manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(data: bytes) -> Manifest:
    """Read a manifest; raises ValueError saying what is wrong with it."""
    try:
        manifest = _decoder.decode(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if manifest.format != FORMAT:
        raise ValueError(f"format {manifest.format!r}, wanted {FORMAT!r}")
    return manifest
